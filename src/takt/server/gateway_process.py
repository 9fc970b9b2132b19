"""Entry point of a gateway process: ``python -m takt.server.gateway_process``.

Its configuration is the first line of its standard input::

    {"gateway": {...}, "openpi": {"host": "127.0.0.1", "port": 8000, "token": null}}

with a :class:`~takt.gateway.config.GatewayConfig` and one entry per door. Standard input then stays
open as a lifeline: when it ends, the supervisor has died, and the gateway drains and exits, as it
does on SIGTERM. Every change of its state is a line of JSON on standard output:

==================  ==========================================================================
event               fields
==================  ==========================================================================
``listening``       ``door``, ``host`` and ``port`` that were bound
``ready``           ``models``: every one is served; said once
``model_failed``    ``model``, ``worker``, ``reason``
``worker_lost``     ``worker``, ``reason``
``worker_back``     ``worker``: it has been lost and serves again
``worker_hung``     ``worker``, ``silence_ms``: it should be killed
``draining``        ``reason``
``stopped``         ``counters``
==================  ==========================================================================

Its log goes to standard error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from takt.doors.openpi_websocket import OpenpiDoor
from takt.errors import ConfigError
from takt.gateway.config import GatewayConfig
from takt.gateway.gateway import Gateway
from takt.server.child_process import allow_many_files, announce, begin_log, first_line

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

    @classmethod
    def from_json(cls, document: bytes) -> GatewayProcessConfig:
        """Read the document.

        Raises:
            ConfigError: A part is unknown, missing or impossible.
        """
        try:
            parts = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
            unknown = sorted(parts.keys() - {"gateway", "openpi"})
            if unknown:
                raise ConfigError(f"gateway process: unknown part {unknown[0]!r}")
            gateway = GatewayConfig.from_json(bytes(parts.pop("gateway", msgspec.Raw(b"{}"))))
            door = msgspec.json.decode(parts.pop("openpi", b"{}"), type=DoorAddress)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"gateway process: {error}") from None
        return cls(gateway=gateway, openpi=door)


def main() -> None:
    """Run a gateway until it is told to stop."""
    begin_log()
    allow_many_files()
    lifeline = sys.stdin.fileno()
    try:
        config = GatewayProcessConfig.from_json(first_line(lifeline))
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(config, lifeline))
    except ConfigError as error:
        sys.stderr.write(f"takt gateway: {error}\n")
        sys.exit(1)


async def _serve(config: GatewayProcessConfig, lifeline: int) -> None:
    stop = asyncio.get_running_loop().create_future()
    _watch(lifeline, stop)
    gateway = Gateway(config.gateway, on_event=_announce)
    door = OpenpiDoor(gateway, token=config.openpi.token)
    try:
        gateway.start()
        host, port = await door.start(config.openpi.host, config.openpi.port)
        _announce("listening", {"door": "openpi", "host": host, "port": port})
        reason = await stop
        _announce("draining", {"reason": reason})
        await _drain(gateway, door, reason)
        _announce("stopped", {"counters": {**gateway.statistics(), **door.statistics()}})
    finally:
        gateway.close()


async def _drain(gateway: Gateway, door: OpenpiDoor, reason: str) -> None:
    door.stop_listening()
    try:
        await asyncio.wait_for(gateway.drain(reason), _DRAIN_S)
    except TimeoutError:
        log.warning("requests were still under way when the time to drain was over")
    await door.close(reason)


def _watch(lifeline: int, stop: asyncio.Future[str]) -> None:
    """Let a signal or the end of the supervisor stop the gateway."""
    loop = asyncio.get_running_loop()

    def say_stop(reason: str) -> None:
        if not stop.done():
            stop.set_result(reason)

    def read_lifeline() -> None:
        if not os.read(lifeline, 4096):
            loop.remove_reader(lifeline)
            say_stop("the server's supervisor is gone")

    loop.add_reader(lifeline, read_lifeline)
    loop.add_signal_handler(signal.SIGTERM, say_stop, "the server is being stopped")
    # A Ctrl-C at the terminal reaches the whole group; the supervisor decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _announce(event: str, fields: Mapping[str, object]) -> None:
    announce({"event": event, **fields})


if __name__ == "__main__":
    main()
