"""The operator's door: one socket of the supervisor, for programs of the same user on this host.

Its address lies in Linux's abstract namespace under the supervisor's process number: there is no
file to protect or to leave behind, no network reaches it, and the kernel says who dials. A request
is a line of JSON, its answer another; then the connection ends::

    {"command": "list"}
    {"command": "load", "model": {"name": "pi0-v2", "policy": "pi0-v2"}, "folder": "/models"}
    {"command": "unload", "name": "pi0-v1"}

    {"models": [...]} or {"error": "no model 'pi0-v1'; there are: echo"}

``load`` takes ``worker`` where there are several, and ``folder``, which a relative path starts
from; a server with model roots looks inside them alone.

Start reading at :meth:`Admin.serve` and :func:`ask`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from takt.errors import ConfigError, RefusedError, UsageError
from takt.link.listener import check_peer, listen
from takt.schema.serving import ServedModel
from takt.server.model_desk import ModelDesk

__all__ = ["Admin", "admin_address", "ask", "running_servers"]

log = logging.getLogger(__name__)

_MAX_LINE_BYTES = 1 << 20
_ADDRESS = re.compile(r"@takt/admin-(\d+)$", re.MULTILINE)


class _List(msgspec.Struct, tag_field="command", tag="list", forbid_unknown_fields=True):
    pass


class _Load(msgspec.Struct, tag_field="command", tag="load", forbid_unknown_fields=True):
    model: ServedModel
    worker: str | None = None
    folder: str | None = None


class _Unload(msgspec.Struct, tag_field="command", tag="unload", forbid_unknown_fields=True):
    name: str


_decoder = msgspec.json.Decoder(_List | _Load | _Unload)


def admin_address(pid: int) -> str:
    """Link address of the operator's door of a supervisor."""
    return f"admin-{pid}"


class Admin:
    """Answers an operator.

    Args:
        desk: Does what is asked for.
        address: See :func:`admin_address`.

    Raises:
        ConfigError: Another process has this address.
    """

    def __init__(self, desk: ModelDesk, address: str) -> None:
        self._desk = desk
        self._socket = listen(address)
        self._server: asyncio.Server | None = None

    async def serve(self) -> None:
        """Begin to answer."""
        self._server = await asyncio.start_unix_server(
            self._talk, sock=self._socket, limit=_MAX_LINE_BYTES
        )

    def close(self) -> None:
        """Stop listening; requests under way are not answered."""
        if self._server is not None:
            self._server.close()
        self._socket.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            check_peer(writer.get_extra_info("socket"))
            answer = await self._answer(await reader.readline())
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()
        except (RefusedError, OSError, ValueError) as error:
            log.warning("operator turned away: %s", error)
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> Mapping[str, Any]:
        try:
            match _decoder.decode(line):
                case _Load(model=model, worker=worker, folder=folder):
                    await self._desk.load(model, worker, None if folder is None else Path(folder))
                case _Unload(name=name):
                    await self._desk.unload(name)
                case _List():
                    pass
        # Nested too deeply is a recursion error, and no decode error.
        except (msgspec.DecodeError, ConfigError, RecursionError) as error:
            return {"error": str(error)}
        return {"models": self._desk.table()}


def running_servers() -> list[int]:
    """Process numbers of the supervisors on this host, whoever runs them."""
    try:
        sockets = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return sorted({int(pid) for pid in _ADDRESS.findall(sockets)})


def ask(pid: int | None, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Ask a supervisor and wait until it has done so; loading a model may take minutes.

    Args:
        pid: Which one; None: the only one on this host.
        request: See the module.

    Returns:
        The models it serves then.

    Raises:
        UsageError: There is no such server, it is another user's, or it refused.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        _dial(connection, _only_server() if pid is None else pid)
        connection.sendall(msgspec.json.encode(request) + b"\n")
        with connection.makefile("rb") as lines:
            line = lines.readline()
    if not line:
        raise UsageError("the server ended before it answered")
    answer: dict[str, Any] = msgspec.json.decode(line)
    if "error" in answer:
        raise UsageError(answer["error"])
    return answer["models"]


def _only_server() -> int:
    running = running_servers()
    if len(running) != 1:
        said = "no server runs here" if not running else f"several servers run here: {running}"
        raise UsageError(f"{said}; name one with --server PID")
    return running[0]


def _dial(connection: socket.socket, pid: int) -> None:
    try:
        connection.connect(f"\0takt/{admin_address(pid)}")
        check_peer(connection)
    except RefusedError as error:
        raise UsageError(f"--server {pid}: {error}") from None
    except OSError:
        here = ", ".join(map(str, running_servers())) or "none"
        raise UsageError(
            f"--server {pid}: expected the process number of a running 'takt serve', here: {here}"
        ) from None
