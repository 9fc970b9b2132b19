"""Refuses files that a command could not write, or by writing which it would destroy another.

Looked at before work is done for them. How they are written is :mod:`takt.files`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from takt.errors import UsageError

__all__ = ["check_named_after", "check_outputs"]


def check_outputs(outputs: Iterable[tuple[str, Path | None]], *inputs: Path | None) -> None:
    """Refuse outputs that cannot be.

    Args:
        outputs: Files to be written, each with the flag that it was given by.
        inputs: Files that the command reads.

    Raises:
        UsageError: There is no such folder, it is a folder itself, it is also read, or it is
            written twice; the message begins with the flag.
    """
    taken = {path: "the file that is read" for path in inputs if path is not None}
    for flag, path in outputs:
        if path is not None:
            _check_place(flag, path)
            _check_free(flag, path, taken)
            taken[path] = f"the file of {flag}"


def check_named_after(flag: str, path: Path | None) -> None:
    """Refuse what is no name of a file, where several files are to be named after it.

    Raises:
        UsageError: It is a folder, a device or a pipe: the files would lie beside it.
    """
    if path is None:
        return
    _check_place(flag, path)
    if _holds_nothing(path):
        raise UsageError(
            f"{flag} {path}: is no ordinary file; several files get names made from it, such as"
            " run-gpu0.jsonl from run.jsonl"
        )


def _check_place(flag: str, path: Path) -> None:
    # In a folder that is closed to us, pathlib raises where os.path says no.
    if os.path.isdir(path):
        raise UsageError(f"{flag} {path}: is a folder; expected the name of a file")
    if not os.path.isdir(path.parent):
        raise UsageError(f"{flag} {path}: no folder {path.parent}")


def _check_free(flag: str, path: Path, taken: Mapping[Path, str]) -> None:
    if _holds_nothing(path):
        return
    for other, what in taken.items():
        if _is_same(path, other):
            raise UsageError(f"{flag} {path}: is {what}; give another file")


def _holds_nothing(path: Path) -> bool:
    """Whether it is a device or a pipe: nothing in it could be lost."""
    return os.path.exists(path) and not os.path.isfile(path)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there yet
        return os.path.realpath(one) == os.path.realpath(other)
