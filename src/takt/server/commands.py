r"""Commands of the supervisor as lines on a child's standard input.

An empty line asks whether the child lives. Any other line is a JSON object::

    {"command": "load_model", "model": {"name": "pi0-v2", "policy": "/models/pi0-v2"}}
    {"command": "unload_model", "name": "pi0-v1"}

The first line of all is the child's configuration and is read by
:func:`takt.server.child_process.first_line`.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from takt.errors import ConfigError
from takt.schema.commands import AskLife, Command, LoadModel, UnloadModel
from takt.schema.serving import ServedModel

__all__ = ["CommandLines", "load_line", "unload_line"]

log = logging.getLogger(__name__)

_MAX_LINE_BYTES = 1 << 20


class _Load(msgspec.Struct, tag_field="command", tag="load_model", forbid_unknown_fields=True):
    model: ServedModel


class _Unload(msgspec.Struct, tag_field="command", tag="unload_model", forbid_unknown_fields=True):
    name: str


_decoder = msgspec.json.Decoder(_Load | _Unload)


def load_line(model: ServedModel) -> dict[str, Any]:
    """The command to serve ``model``, as plain values."""
    return {"command": "load_model", "model": msgspec.to_builtins(model)}


def unload_line(name: str) -> dict[str, Any]:
    """The command to serve a model no longer, as plain values."""
    return {"command": "unload_model", "name": name}


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
    return LoadModel(said.model) if isinstance(said, _Load) else UnloadModel(said.name)
