"""Refuses files that a command could not write, or by writing which it would destroy another.

What is there already is replaced where it is an earlier file of the same kind. A kind is told by
how its files begin, since a name says little: a profile and a timeline both end in ``.json``.
Pictures are told by their suffix, which is checked where they are drawn.

Looked at before work is done for them. How they are written is :mod:`takt.files`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from takt.errors import UsageError

__all__ = [
    "CSV",
    "LOG",
    "PROFILE",
    "STEPS",
    "TIMELINE",
    "TRACE",
    "Kind",
    "check_named_after",
    "check_outputs",
]

_HEAD = 4096
"""Bytes by which a kind is told."""
_SHOWN = 40


class Kind(NamedTuple):
    """What a command writes into a file."""

    name: str
    begins: bytes
    """How each such file begins, without the white space."""


PROFILE = Kind("profile", b'{"header":{')
TRACE = Kind("trace of a scheduler", b'{"takt_trace":')
TIMELINE = Kind("timeline", b'{"displayTimeUnit":')
LOG = Kind("episode log", b'{"event":"episode",')
STEPS = Kind("trace of episodes", b'{"episode":')
CSV = Kind("table of requests", b"epoch,seed,robot,")


def check_outputs(
    outputs: Iterable[tuple[str, Path | None] | tuple[str, Path | None, Kind]],
    *inputs: Path | None,
) -> None:
    """Refuse outputs that cannot be.

    Args:
        outputs: Files to be written, each with the flag that it was given by and, unless it is a
            picture, its kind.
        inputs: Files that the command reads.

    Raises:
        UsageError: There is no such folder, it is a folder itself, nobody may write there, it is
            also read, it is written twice, or it holds something of another kind; the message
            begins with the flag.
    """
    taken = {_identity(path): "the file that is read" for path in inputs if path is not None}
    for flag, path, *kinds in outputs:
        if path is None:
            continue
        _check_place(flag, path)
        if _holds_nothing(path):
            continue
        file = _identity(path)
        if file in taken:
            raise UsageError(f"{flag} {path}: is {taken[file]}; give another file")
        taken[file] = f"the file of {flag}"
        for kind in kinds:
            _check_content(flag, path, kind)


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
    if not os.access(path if os.path.exists(path) else path.parent, os.W_OK):
        raise UsageError(f"{flag} {path}: you may not write there")


def _check_content(flag: str, path: Path, kind: Kind) -> None:
    """Refuse to replace what is not of this kind; a file that is empty or cut short may be."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:  # it is not there, or may be written alone
        return
    begins = b"".join(head.split())
    if not begins.startswith(kind.begins) and not kind.begins.startswith(begins):
        found = head.strip().partition(b"\n")[0][:_SHOWN].decode(errors="replace")
        raise UsageError(
            f"{flag} {path}: expected no file or an earlier {kind.name}, found one that begins"
            f" with {found!r}"
        )


def _holds_nothing(path: Path) -> bool:
    """Whether it is a device or a pipe: nothing in it could be lost."""
    return os.path.exists(path) and not os.path.isfile(path)


def _identity(path: Path) -> object:
    """Equal for two names of one file."""
    try:
        found = os.stat(path)
    except OSError:  # it is not there yet
        return os.path.realpath(path)
    return found.st_dev, found.st_ino
