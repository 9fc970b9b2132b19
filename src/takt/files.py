"""Writes files as a whole: a reader finds the old content or the new, never half of one.

What is new is written beside the file and takes its place once it is complete. A disk that is full
or a program that is stopped costs the new content and leaves the old.

Start reading at :func:`replacing`.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["replacing"]


@contextmanager
def replacing(path: Path) -> Generator[Path, None, None]:
    """Where to write what takes the place of ``path`` when the block ends without an error.

    It lies in the same folder and has the same suffix, by which writers of pictures know what to
    write. A link is followed. A device or a pipe holds nothing that could be lost and is written
    itself.

    Raises:
        OSError: The file cannot be made, or cannot take its place; ``path`` is as it was, as it is
            after any error of the block.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    target = Path(os.path.realpath(path))
    if target.exists() and not os.access(target, os.W_OK):  # renaming would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    beside = target.with_name(f".takt-{secrets.token_hex(8)}{path.suffix}")
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    try:
        yield beside
        _complete(beside, target)
        beside.replace(target)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def _complete(beside: Path, target: Path) -> None:
    """Give it the old file's permissions, and bring its content to the disk before its name."""
    with suppress(FileNotFoundError):
        shutil.copymode(target, beside)
    opened = os.open(beside, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
