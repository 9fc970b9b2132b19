"""Entry point of a gateway process: ``python -m takt.server.gateway_process``.

Its configuration is the first line of its standard input::

    {"gateway": {...}, "openpi": {"host": "127.0.0.1", "port": 8000, "token": null}}

with a :class:`~takt.gateway.config.GatewayConfig` and one entry per door. Standard input then stays
open as a lifeline: further lines are commands (:mod:`takt.server.commands`), and when it ends, the
supervisor has died, and the gateway drains and exits, as it does on SIGTERM. Every change of its
state is a line of JSON on standard output:

==================  ==========================================================================
event               fields
==================  ==========================================================================
``listening``       ``door``, ``host`` and ``port`` that were bound
``ready``           ``models``: those that are served; no other is loading. Said once
``model_failed``    ``model``, ``reason`` and, where it is a worker's, ``worker``
``model_added``     ``model``: robots may ask for it
``model_removed``   ``model``: robots may ask for it no longer
``model_refused``   ``model``, ``reason``: it was not added or removed
``robots``          ``over_ms`` and ``models``: ``robots`` and ``requests`` of each, when asked
``worker_lost``     ``worker``, ``reason``
``worker_back``     ``worker``: it has been lost and serves again
``worker_hung``     ``worker``, ``silence_ms``: it should be killed
``draining``        ``reason``
``stopped``         ``counters``
``failed``          ``reason``: it cannot serve, and ends
==================  ==========================================================================

Its log goes to standard error.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from takt.doors.lerobot_options import LerobotOptions
from takt.doors.openpi_websocket import OpenpiDoor
from takt.errors import ConfigError
from takt.gateway.config import GatewayConfig
from takt.gateway.gateway import Gateway
from takt.gateway.models import open_model
from takt.heap import keep_freed_memory
from takt.schema.commands import AskLife, CountRobots, DriveIn, LoadModel, UnloadModel
from takt.schema.serving import ServedModel
from takt.server.child_process import (
    allow_many_files,
    announce,
    announce_failure,
    begin_log,
    first_line,
)
from takt.server.commands import CommandLines

try:
    from uvloop import new_event_loop
except ImportError:  # uvloop has no Windows; asyncio's own loop does the same, more slowly
    from asyncio import new_event_loop

__all__ = ["DoorAddress", "GatewayProcessConfig", "main"]

log = logging.getLogger(__name__)

_DRAIN_S = 8.0
"""Longest wait for requests under way; a little less than a supervisor waits before it kills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorAddress:
    """Where a door listens and what it asks for."""

    host: str = "127.0.0.1"
    """Address to bind; one that others can reach needs a token."""
    port: int = 0
    """Port to bind; 0 takes a free one."""
    token: str | None = None
    """What clients must present; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProcessConfig:
    """The document on standard input."""

    gateway: GatewayConfig
    """The gateway itself."""
    openpi: DoorAddress
    """The openpi door."""
    lerobot: LerobotOptions | None = None
    """The LeRobot door; None: there is none."""

    @classmethod
    def from_json(cls, document: bytes) -> GatewayProcessConfig:
        """Read the document.

        Raises:
            ConfigError: A part is unknown, missing or impossible.
        """
        try:
            parts = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
            unknown = sorted(parts.keys() - {"gateway", "openpi", "lerobot"})
            if unknown:
                raise ConfigError(f"gateway process: unknown part {unknown[0]!r}")
            gateway = GatewayConfig.from_json(bytes(parts.pop("gateway", msgspec.Raw(b"{}"))))
            door = msgspec.json.decode(parts.pop("openpi", b"{}"), type=DoorAddress)
            lerobot = msgspec.json.decode(parts.pop("lerobot", b"null"), type=LerobotOptions | None)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"gateway process: {error}") from None
        return cls(gateway=gateway, openpi=door, lerobot=lerobot)


def main() -> None:
    """Run a gateway until it is told to stop."""
    begin_log()
    allow_many_files()
    keep_freed_memory()
    lifeline = sys.stdin.fileno()
    try:
        config = GatewayProcessConfig.from_json(first_line(lifeline))
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(config, lifeline))
    except ConfigError as error:
        announce_failure(error)
        sys.exit(1)


async def _serve(config: GatewayProcessConfig, lifeline: int) -> None:
    stop = asyncio.get_running_loop().create_future()
    gateway = Gateway(config.gateway, on_event=_announce)
    _watch(lifeline, stop, _Commands(gateway))
    openpi = OpenpiDoor(gateway, token=config.openpi.token)
    doors: list[_Door] = [openpi]
    try:
        gateway.start()
        host, port = await openpi.start(config.openpi.host, config.openpi.port)
        _announce("listening", {"door": "openpi", "host": host, "port": port})
        if config.lerobot is not None:
            doors.append(await _open_lerobot(gateway, config.lerobot))
        # What starting left behind lives as long as the process: no collection looks at it again.
        gc.collect()
        gc.freeze()
        reason = await stop
        _announce("draining", {"reason": reason})
        await _drain(gateway, doors, reason)
        counters = gateway.statistics()
        for door in doors:
            counters |= door.statistics()
        _announce("stopped", {"counters": counters})
    finally:
        gateway.close()


class _Door(Protocol):
    """What every door can be told."""

    def stop_listening(self) -> None:
        """Take nothing new."""
        ...

    async def close(self, reason: str) -> None:
        """Close every connection."""
        ...

    def statistics(self) -> dict[str, int]:
        """Every counter by name."""
        ...


async def _open_lerobot(gateway: Gateway, options: LerobotOptions) -> _Door:
    from takt.doors.lerobot_grpc import LerobotDoor  # imports gRPC

    door = LerobotDoor(gateway, options)
    host, port = await door.start()
    _announce("listening", {"door": "lerobot", "host": host, "port": port})
    return door


async def _drain(gateway: Gateway, doors: list[_Door], reason: str) -> None:
    for door in doors:
        door.stop_listening()
    try:
        await asyncio.wait_for(gateway.drain(reason), _DRAIN_S)
    except TimeoutError:
        log.warning("requests were still under way when the time to drain was over")
    for door in doors:
        await door.close(reason)


class _Commands:
    """Does what the supervisor asks for while the gateway runs."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._lines = CommandLines()
        self._adding: set[asyncio.Task[None]] = set()

    def feed(self, data: bytes) -> None:
        """Take in what came on the lifeline."""
        for command in self._lines.feed(data):
            match command:
                case AskLife():
                    _announce("lives", {})
                case LoadModel(model):
                    adding = asyncio.create_task(self._add(model))
                    self._adding.add(adding)
                    adding.add_done_callback(self._adding.discard)
                case UnloadModel(name):
                    self._remove(name)
                case CountRobots(lately):
                    _announce("robots", self._gateway.robots(lately))
                case DriveIn():
                    pass  # it is the workers who drive

    async def _add(self, served: ServedModel) -> None:
        try:
            # A card may lie on a slow disk, and robots do not wait for it.
            model = await asyncio.to_thread(open_model, served)
            self._gateway.add_model(model)
        except ConfigError as error:
            _announce("model_refused", {"model": served.name, "reason": str(error)})
        else:
            _announce("model_added", {"model": served.name})

    def _remove(self, name: str) -> None:
        try:
            self._gateway.remove_model(name)
        except ConfigError as error:
            _announce("model_refused", {"model": name, "reason": str(error)})
        else:
            _announce("model_removed", {"model": name})


def _watch(lifeline: int, stop: asyncio.Future[str], commands: _Commands) -> None:
    """Let a signal or the end of the supervisor stop the gateway."""
    loop = asyncio.get_running_loop()

    def say_stop(reason: str) -> None:
        if not stop.done():
            stop.set_result(reason)

    def read_lifeline() -> None:
        data = os.read(lifeline, 1 << 16)
        if data:
            commands.feed(data)
        else:
            loop.remove_reader(lifeline)
            if not stop.done():
                log.warning("the supervisor is gone: draining")
            say_stop("the server's supervisor is gone")

    loop.add_reader(lifeline, read_lifeline)
    loop.add_signal_handler(signal.SIGTERM, say_stop, "the server is being stopped")
    # A Ctrl-C at the terminal reaches the whole group; the supervisor decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _announce(event: str, fields: Mapping[str, object]) -> None:
    announce({"event": event, **fields})


if __name__ == "__main__":
    main()
