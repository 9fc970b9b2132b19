r"""Commands of the supervisor as lines on a child's standard input.

An empty line asks whether the child lives. Any other line is a JSON object::

    {"command": "load_model", "model": {"name": "pi0-v2", "policy": "/models/pi0-v2"}}
    {"command": "unload_model", "name": "pi0-v1"}
    {"command": "count_robots", "lately": 30000000000}
    {"command": "drive_in", "formation": "flowing", "options": {}, ...}

The limits of ``drive_in`` are those of :class:`~takt.schema.commands.DriveIn`, by their names.

The first line of all is the child's configuration and is read by
:func:`takt.server.child_process.first_line`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from takt.errors import ConfigError
from takt.schema.commands import AskLife, Command, CountRobots, DriveIn, LoadModel, UnloadModel
from takt.schema.serving import ServedModel
from takt.units import Nanos

__all__ = ["CommandLines", "count_line", "drive_line", "load_line", "unload_line"]

log = logging.getLogger(__name__)

_MAX_LINE_BYTES = 1 << 20


class _Load(msgspec.Struct, tag_field="command", tag="load_model", forbid_unknown_fields=True):
    model: ServedModel


class _Unload(msgspec.Struct, tag_field="command", tag="unload_model", forbid_unknown_fields=True):
    name: str


class _Count(msgspec.Struct, tag_field="command", tag="count_robots", forbid_unknown_fields=True):
    lately: Annotated[int, Meta(ge=1)]


class _Drive(msgspec.Struct, tag_field="command", tag="drive_in", forbid_unknown_fields=True):
    formation: str
    options: dict[str, Any]
    prefix_limit: int | None
    denoise_limit: int | None


_Said: TypeAlias = _Load | _Unload | _Count | _Drive
_decoder: msgspec.json.Decoder[_Said] = msgspec.json.Decoder(_Said)


def load_line(model: ServedModel) -> dict[str, Any]:
    """The command to serve ``model``, as plain values."""
    return {"command": "load_model", "model": msgspec.to_builtins(model)}


def unload_line(name: str) -> dict[str, Any]:
    """The command to serve a model no longer, as plain values."""
    return {"command": "unload_model", "name": name}


def count_line(lately: Nanos) -> dict[str, Any]:
    """The command to say which robots ask for which model, as plain values."""
    return {"command": "count_robots", "lately": lately}


def drive_line(driven: Mapping[str, Any]) -> dict[str, Any]:
    """The command to drive a device in another formation, as plain values.

    Args:
        driven: The fields of :class:`~takt.schema.commands.DriveIn`.
    """
    return {"command": "drive_in", **driven}


class CommandLines:
    """Cuts what comes on standard input into commands."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Command]:
        """The commands that are complete with ``data``; a line that is none is logged."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES:
            log.warning("a command of more than %d bytes was dropped", _MAX_LINE_BYTES)
            self._rest = b""
        read = [_read(line) for line in lines]
        return [command for command in read if command is not None]


def _read(line: bytes) -> Command | None:
    if not line:
        return AskLife()
    try:
        said = _decoder.decode(line)
    except (msgspec.DecodeError, ConfigError, UnicodeDecodeError) as error:
        log.warning("not a command: %s", error)
        return None
    return _command(said)


def _command(said: _Said) -> Command:
    match said:
        case _Load(model=model):
            return LoadModel(model)
        case _Unload(name=name):
            return UnloadModel(name)
        case _Count(lately=lately):
            return CountRobots(lately)
        case _Drive():
            return DriveIn(**msgspec.structs.asdict(said))
