"""Reads the file of a recorded trace: its lines, and the events that they say.

:mod:`takt.core.trace` writes the lines. A file may hold several traces, one after the other, each
with the setup of its scheduler first; a last line that a kill cut off is left out.

Start reading at :func:`read_trace`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

from takt.core.events import Cancel, Decide, Ended, Event, Finish, Moved, Submit, Switched
from takt.core.launch import Lane, Launch
from takt.core.request import Phase, Stage
from takt.core.trace import Setup
from takt.errors import ConfigError, UsageError

__all__ = ["file_lines", "read_trace"]

_Fields: TypeAlias = dict[str, Any]

_VERSION = 1
"""Of the traces that these lines can read."""


def file_lines(path: Path) -> Iterator[str]:
    """The whole lines of a trace file, with their ends.

    A last line that is cut off is left out, and standard error says so.

    Raises:
        UsageError: There is no such file, it is a folder, no text, or cannot be read.
    """
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield line
                else:
                    print(f"takt: {path}: its last line is cut off: left out", file=sys.stderr)
    except FileNotFoundError:
        raise UsageError("no such trace") from None
    except IsADirectoryError:
        raise UsageError("is a folder; expected a trace") from None
    except UnicodeDecodeError:
        raise UsageError("not a text file in UTF-8; expected a trace") from None
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}") from None


def read_trace(lines: Iterable[str]) -> Iterator[Setup | Event]:
    """The parts of a trace file in their order: each setup, and after it its events.

    Args:
        lines: With their line ends.

    Raises:
        UsageError: A line is none of a trace; the message names its number.
    """
    has_setup = False
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            return
        part = _part(line, number)
        has_setup |= isinstance(part, Setup)
        if not has_setup:
            raise UsageError("line 1: expected the setup that a trace begins with")
        yield part


def _part(line: str, number: int) -> Setup | Event:
    try:
        fields = cast("object", json.loads(line))
    except ValueError as error:
        raise UsageError(f"line {number} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UsageError(f"line {number}: expected an object, got {line.strip()[:40]!r}")
    try:
        return _typed(cast("_Fields", fields))
    except KeyError as missing:
        raise UsageError(f"line {number} is no line of a trace: expected a key {missing}") from None
    except (ConfigError, TypeError, ValueError) as error:
        raise UsageError(f"line {number} is no line of a trace: {error}") from None


def _typed(fields: _Fields) -> Setup | Event:
    if "takt_trace" in fields:
        if fields["takt_trace"] != _VERSION:
            raise ValueError(f"expected a trace of version {_VERSION}, got {fields['takt_trace']}")
        return Setup.from_json(fields["setup"])
    kind = fields.pop("event")
    read = _EVENTS.get(kind)
    if read is None:
        raise ValueError(f"no event {kind!r}; known: {', '.join(_EVENTS)}")
    event = read(fields)
    if not isinstance(event.at, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"at: expected whole nanoseconds, got {event.at!r}")
    return event


def _decide(fields: _Fields) -> Decide:
    launches = tuple(
        Launch(_lane(lane), model, tuple(requests), size, layout, share)
        for lane, model, requests, size, layout, share in fields["launches"]
    )
    return Decide(fields["at"], launches, fields["wake_at"])


def _finish(fields: _Fields) -> Finish:
    return Finish(fields["at"], _lane(fields["lane"]), tuple(fields["failed"]))


def _ended(fields: _Fields) -> Ended:
    return Ended(fields["at"], fields["seq"], Phase(fields["phase"]))


def _lane(pair: tuple[int, int]) -> Lane:
    device, stage = pair
    return Lane(device, Stage(stage))


_EVENTS: dict[str, Callable[[_Fields], Event]] = {
    "submit": lambda fields: Submit(**fields),
    "cancel": lambda fields: Cancel(**fields),
    "finish": _finish,
    "decide": _decide,
    "moved": lambda fields: Moved(**fields),
    "switched": lambda fields: Switched(**fields),
    "ended": _ended,
}
