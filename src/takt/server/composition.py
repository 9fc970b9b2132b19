"""Turns what an operator asked for into the processes of a server.

A server has one worker per device and any number of gateways. Which models a device has, and which
devices a gateway sends to, is fixed here: a robot is assigned by the door it connects to and the
model it asks, and among the devices that are left the gateway takes the one with least under way.

Start reading at :meth:`Composition.of`.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from takt.doors.lerobot_options import LerobotOptions
from takt.errors import ConfigError
from takt.gateway.config import GatewayConfig, WorkerAddress
from takt.link.listener import listen
from takt.runtime.config import WorkerConfig
from takt.runtime.trace_file import begin_trace
from takt.schema.serving import ServedModel
from takt.server.children import ChildSpec
from takt.server.model_roots import ModelRoots

__all__ = ["Composition", "DevicePlan", "GatewayPlan", "ServerPlan", "split_cores", "worker_name"]


_MAX_NAME_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlan:
    """A device, and how its worker drives it."""

    name: str = "0"
    models: tuple[ServedModel, ...]
    """Models loaded on it."""
    formation: str = "lockstep"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the formation."""
    discipline: str = "earliest_deadline"
    lateness: str = "yield"
    prefix_cores: tuple[int, ...] = ()
    denoise_cores: tuple[int, ...] = ()
    paced: str | None = None
    """GPU whose times it takes by waiting; None: it is this computer's CPU."""
    paced_seed: int | None = None
    """Makes the paced device a stranger, see :mod:`takt.runtime.paced_device`."""
    profile_path: str | None = None
    """Profile its scheduler believes, see :mod:`takt.hardware.measured`."""
    prefix_limit: int | None = None
    """Most rows of a prefix launch; None: the largest captured size."""
    denoise_limit: int | None = None
    """Most rows of a denoise launch; likewise."""
    trace_path: str | None = None
    """File for the trace of its scheduler."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPlan:
    """A gateway and its doors."""

    name: str = "0"
    devices: tuple[str, ...] = ("0",)
    """Devices it sends to."""
    host: str = "127.0.0.1"
    """Address the doors bind."""
    openpi_port: int = 8000
    """Port of the openpi door; 0 takes a free one."""
    default_model: str | None = None
    """Model of robots that name none; the first of its devices when None."""
    lerobot: LerobotOptions | None = None
    """The LeRobot door; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """A server on one host."""

    devices: tuple[DevicePlan, ...]
    gateways: tuple[GatewayPlan, ...] = (GatewayPlan(),)
    token: str | None = None
    """What robots must present; None: nothing, which only loopback allows."""
    network_allowance_ms: float = 0.0
    """What the network of a stock client takes, both ways."""
    hang_ms: float = 1000.0
    """See :attr:`takt.gateway.config.GatewayConfig.hang_ms`."""
    model_roots: ModelRoots = field(default_factory=ModelRoots)
    """Where its models may lie, those included that are loaded while it runs."""

    def __post_init__(self) -> None:
        _check_distinct("devices", [device.name for device in self.devices])
        _check_distinct("gateways", [gateway.name for gateway in self.gateways])
        if not self.gateways:
            raise ConfigError("gateways: at least one is needed, or robots reach nobody")
        for gateway in self.gateways:
            self._check_devices(gateway)
        self._check_reached()
        self._check_models()
        self._check_ports()
        self._check_cores()

    def models_of(self, gateway: GatewayPlan) -> tuple[ServedModel, ...]:
        """The models robots of ``gateway`` may ask for, in the order of its devices."""
        by_name: dict[str, ServedModel] = {}
        for device in self.devices_of(gateway):
            by_name |= {model.name: model for model in device.models if model.name not in by_name}
        return tuple(by_name.values())

    def devices_of(self, gateway: GatewayPlan) -> tuple[DevicePlan, ...]:
        """The devices ``gateway`` sends to."""
        by_name = {device.name: device for device in self.devices}
        return tuple(by_name[name] for name in gateway.devices)

    @property
    def paced(self) -> str | None:
        """The GPUs whose times are waited for; None: every device computes."""
        names = dict.fromkeys(device.paced for device in self.devices if device.paced is not None)
        return ", ".join(names) or None

    def _check_devices(self, gateway: GatewayPlan) -> None:
        place = f"gateways.{gateway.name}"
        names = [device.name for device in self.devices]
        _check_distinct(f"{place}.devices", gateway.devices)
        if not gateway.devices:
            raise ConfigError(f"{place}.devices: at least one is needed")
        for name in gateway.devices:
            if name not in names:
                raise ConfigError(
                    f"{place}.devices: no device {name!r}; there are: {', '.join(names)}"
                )
        served = [model.name for model in self.models_of(gateway)]
        if gateway.default_model is not None and gateway.default_model not in served:
            raise ConfigError(
                f"{place}.default_model: {gateway.default_model!r} is on none of its devices;"
                f" they serve: {', '.join(served)}"
            )

    def _check_reached(self) -> None:
        reached = {name for gateway in self.gateways for name in gateway.devices}
        for device in self.devices:
            if device.name not in reached:
                raise ConfigError(f"devices.{device.name}: no gateway sends to it")

    def _check_models(self) -> None:
        """A model is the same wherever it is: a gateway writes one row for all its replicas."""
        first: dict[str, ServedModel] = {}
        for device in self.devices:
            for model in device.models:
                if first.setdefault(model.name, model) != model:
                    raise ConfigError(
                        f"devices.{device.name}.models: {model.name!r} differs from the one of"
                        " the same name on another device"
                    )

    def _check_ports(self) -> None:
        taken: dict[tuple[str, int], str] = {}
        for gateway in self.gateways:
            doors = {"openpi": (gateway.host, gateway.openpi_port)}
            if gateway.lerobot is not None:
                doors["lerobot"] = gateway.lerobot.host, gateway.lerobot.port
            for door, bound in doors.items():
                place = f"gateways.{gateway.name}.{door}"
                if bound[1] and taken.setdefault(bound, place) != place:
                    raise ConfigError(f"{place}: port {bound[1]} is that of {taken[bound]}")

    def _check_cores(self) -> None:
        taken: dict[int, str] = {}
        for device in self.devices:
            for core in (*device.prefix_cores, *device.denoise_cores):
                if taken.setdefault(core, device.name) != device.name:
                    raise ConfigError(
                        f"devices.{device.name}: core {core} is that of devices.{taken[core]}"
                    )


@dataclass(slots=True)
class Composition:
    """The processes of a server, and the sockets its workers inherit."""

    workers: list[ChildSpec] = field(default_factory=list[ChildSpec])
    gateways: list[ChildSpec] = field(default_factory=list[ChildSpec])
    sockets: list[socket.socket] = field(default_factory=list[socket.socket])
    traces: list[int] = field(default_factory=list[int])
    """Descriptors that keep other servers from its traces; its workers inherit them, too."""

    @classmethod
    def of(cls, plan: ServerPlan) -> Composition:
        """Compose the server of ``plan``."""
        composition = cls()
        # Link addresses are abstract: a random part keeps two servers of one user apart.
        server = f"{os.getpid()}-{secrets.token_hex(4)}"
        workers = {
            device.name: WorkerAddress(
                name=worker_name(device), address=f"{server}/{worker_name(device)}"
            )
            for device in plan.devices
        }
        try:
            for device in plan.devices:
                composition._add_worker(device, workers[device.name])
            for gateway in plan.gateways:
                composition._add_gateway(plan, gateway, [workers[name] for name in gateway.devices])
        except BaseException:
            composition.close()
            raise
        return composition

    def close(self) -> None:
        """Stop listening for gateways, and let go of the traces."""
        for listening in self.sockets:
            listening.close()
        while self.traces:
            os.close(self.traces.pop())

    def _add_worker(self, device: DevicePlan, worker: WorkerAddress) -> None:
        # The supervisor holds the socket, so gateways can dial while a worker is being restarted.
        listening = listen(worker.address)
        self.sockets.append(listening)
        # It holds the trace, too; so does the worker, which may outlive it and write to the end.
        held = [] if device.trace_path is None else [_begin_trace(device.trace_path)]
        self.traces += held
        config = WorkerConfig(
            name=worker.name,
            address=worker.address,
            models=device.models,
            formation=device.formation,
            formation_options=device.options,
            discipline=device.discipline,
            lateness=device.lateness,
            prefix_cores=device.prefix_cores,
            denoise_cores=device.denoise_cores,
            paced=device.paced,
            paced_seed=device.paced_seed,
            profile_path=device.profile_path,
            prefix_limit=device.prefix_limit,
            denoise_limit=device.denoise_limit,
            listening_fd=listening.fileno(),
            trace_path=device.trace_path,
        )
        self.workers.append(
            ChildSpec(
                name=worker.name,
                command=_module("takt.server.worker_process"),
                config=_plain(config),
                inherited=(listening.fileno(), *held),
            )
        )

    def _add_gateway(
        self, plan: ServerPlan, gateway: GatewayPlan, workers: Sequence[WorkerAddress]
    ) -> None:
        name, models = f"gateway-{gateway.name}", plan.models_of(gateway)
        config = GatewayConfig(
            name=name,
            workers=tuple(workers),
            models=models,
            default_model=gateway.default_model or models[0].name,
            network_allowance_ms=plan.network_allowance_ms,
            hang_ms=plan.hang_ms,
        )
        door = {"host": gateway.host, "port": gateway.openpi_port, "token": plan.token}
        doors: dict[str, Any] = {"openpi": door}
        if gateway.lerobot is not None:
            doors["lerobot"] = _plain(gateway.lerobot)
        self.gateways.append(
            ChildSpec(
                name=name,
                command=_module("takt.server.gateway_process"),
                config={"gateway": _plain(config), **doors},
            )
        )


def worker_name(device: DevicePlan) -> str:
    """Name of the process that owns a device."""
    return f"worker-{device.name}"


def split_cores(cores: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cores of the prefix lane and of the denoise lane: disjoint halves where there are two."""
    half = len(cores) // 2
    if half == 0:
        return (), ()
    return tuple(cores[:half]), tuple(cores[half:])


def _check_distinct(place: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{place}: {name!r} is named twice")


def _begin_trace(path: str) -> int:
    try:
        return begin_trace(path)
    except ConfigError as error:
        raise ConfigError(f"--trace {error}") from None


def _module(name: str) -> tuple[str, ...]:
    return sys.executable, "-m", name


def _plain(config: object) -> Mapping[str, Any]:
    return json.loads(msgspec.json.encode(config))
