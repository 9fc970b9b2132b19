"""Turns what an operator asked for into the processes of a server."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from takt.errors import ConfigError
from takt.gateway.config import GatewayConfig, WorkerAddress
from takt.link.listener import listen
from takt.runtime.config import WorkerConfig
from takt.schema.serving import ServedModel
from takt.server.children import ChildSpec

__all__ = ["Composition", "ServerPlan", "split_cores"]


_MAX_NAME_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """A server on one host: one worker, one gateway."""

    models: tuple[ServedModel, ...]
    """Models to serve; the first is the default of doors that name none."""
    host: str = "127.0.0.1"
    """Address the doors bind."""
    openpi_port: int = 8000
    """Port of the openpi door; 0 takes a free one."""
    token: str | None = None
    """What robots must present; None: nothing, which only loopback allows."""
    formation: str = "lockstep"
    discipline: str = "earliest_deadline"
    prefix_cores: tuple[int, ...] = ()
    denoise_cores: tuple[int, ...] = ()
    network_allowance_ms: float = 0.0
    """What the network of a stock client takes, both ways."""
    trace_path: str | None = None
    """File for the trace of the worker's scheduler."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("nothing to serve: give at least one --model")
        names = [model.name for model in self.models]
        for name in names:
            if not 0 < len(name) <= _MAX_NAME_LENGTH or not name.isprintable():
                raise ConfigError(
                    f"model {name[:_MAX_NAME_LENGTH]!r}: expected a printable name of"
                    f" 1 to {_MAX_NAME_LENGTH} letters"
                )
            if names.count(name) > 1:
                raise ConfigError(f"model {name!r} is given twice; name one of them differently")


@dataclass(slots=True)
class Composition:
    """The processes of a server, and the sockets its workers inherit."""

    workers: list[ChildSpec] = field(default_factory=list[ChildSpec])
    gateways: list[ChildSpec] = field(default_factory=list[ChildSpec])
    sockets: list[socket.socket] = field(default_factory=list[socket.socket])

    @classmethod
    def of(cls, plan: ServerPlan) -> Composition:
        """Compose the server of ``plan``."""
        composition = cls()
        if plan.trace_path is not None:
            _empty_file(plan.trace_path)
        # Link addresses are abstract: a random part keeps two servers of one user apart.
        address = f"{os.getpid()}-{secrets.token_hex(4)}/worker-0"
        composition._add_worker(plan, "worker-0", address)
        composition._add_gateway(plan, [WorkerAddress(name="worker-0", address=address)])
        return composition

    def close(self) -> None:
        """Stop listening for gateways."""
        for listening in self.sockets:
            listening.close()

    def _add_worker(self, plan: ServerPlan, name: str, address: str) -> None:
        # The supervisor holds the socket, so gateways can dial while a worker is being restarted.
        listening = listen(address)
        self.sockets.append(listening)
        config = WorkerConfig(
            name=name,
            address=address,
            models=plan.models,
            formation=plan.formation,
            discipline=plan.discipline,
            prefix_cores=plan.prefix_cores,
            denoise_cores=plan.denoise_cores,
            listening_fd=listening.fileno(),
            trace_path=plan.trace_path,
        )
        self.workers.append(
            ChildSpec(
                name=name,
                command=_module("takt.server.worker_process"),
                config=_plain(config),
                inherited=(listening.fileno(),),
            )
        )

    def _add_gateway(self, plan: ServerPlan, workers: Sequence[WorkerAddress]) -> None:
        config = GatewayConfig(
            name="gateway-0",
            workers=tuple(workers),
            models=plan.models,
            default_model=plan.models[0].name,
            network_allowance_ms=plan.network_allowance_ms,
        )
        door = {"host": plan.host, "port": plan.openpi_port, "token": plan.token}
        self.gateways.append(
            ChildSpec(
                name="gateway-0",
                command=_module("takt.server.gateway_process"),
                config={"gateway": _plain(config), "openpi": door},
            )
        )


def split_cores(cores: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cores of the prefix lane and of the denoise lane: disjoint halves where there are two."""
    half = len(cores) // 2
    if half == 0:
        return (), ()
    return tuple(cores[:half]), tuple(cores[half:])


def _empty_file(path: str) -> None:
    """Begin a trace; a worker that is started again goes on with it."""
    try:
        Path(path).write_bytes(b"")
    except OSError as error:
        raise ConfigError(f"--trace {path}: {error.strerror}") from None


def _module(name: str) -> tuple[str, ...]:
    return sys.executable, "-m", name


def _plain(config: object) -> Mapping[str, Any]:
    return json.loads(msgspec.json.encode(config))
