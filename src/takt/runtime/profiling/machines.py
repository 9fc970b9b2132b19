"""Devices that can be measured: cores of this computer, and paced devices.

A paced device is measured as a stranger is: nobody looks into its table. Its launches are taken to
follow each other without a gap, as they do on a GPU whose stream has the next one queued, and its
clock is its own: it shows the instant at which a launch ended, not when this computer came to
notice. By default it is waited for, so that measuring takes as long as on the GPU; without waiting
the same happens on paper, and the time it would have taken is known at once.

Start reading at :class:`CpuMachine` and :class:`PacedMachine`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, Protocol, cast

from takt import __version__
from takt.errors import InvariantError
from takt.hardware.calibration import CALIBRATION
from takt.hardware.devices import device_named
from takt.policies.interface import Placement
from takt.runtime.lanes import CpuLanes
from takt.runtime.launches import Completed
from takt.runtime.models import LoadedModel, load_model, num_units
from takt.runtime.paced_device import PacedDevice, load_stand_in
from takt.runtime.paced_lanes import PacedLanes
from takt.runtime.profiling.bench import End, Machine
from takt.schema.serving import ServedModel
from takt.units import Nanos, to_seconds

__all__ = [
    "CpuMachine",
    "Identity",
    "LoadingMachine",
    "PacedMachine",
    "shapes_digest",
    "sleep_until",
]

_ENGINES = ("openvino", "torch", "onnxruntime")
_CPU_INFO = Path("/proc/cpuinfo")


class Identity(NamedTuple):
    """What a device's times are times of."""

    device: str
    engine: str
    versions: dict[str, str]
    precision: str


class LoadingMachine(Machine, Protocol):
    """A device that loads what it is measured with."""

    @property
    def units(self) -> int:
        """Units of the device."""
        ...

    @property
    def shares(self) -> tuple[int, ...]:
        """Shares a prefix launch may be held to, rising."""
        ...

    def load(self, served: Sequence[ServedModel]) -> list[LoadedModel]:
        """Load and warm models; their ``architecture`` is the key of their times."""
        ...

    def identity(self) -> Identity:
        """What it is, once models are loaded."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class CpuMachine:
    """Cores of this computer, with the lanes of a worker.

    Args:
        placement: Cores of each lane, and the precision of the networks.
        clock: Monotonic, in nanoseconds.

    Raises:
        ConfigError: The process may not use one of the cores.
    """

    def __init__(
        self, placement: Placement, *, clock: Callable[[], Nanos] = time.monotonic_ns
    ) -> None:
        self.now = clock
        self.units = num_units(placement)
        self.shares = (self.units,)
        self._placement = placement
        self._ended: SimpleQueue[End] = SimpleQueue()
        self._loaded: list[LoadedModel] = []
        self.lanes = CpuLanes(placement, self._take, clock=clock)

    def load(self, served: Sequence[ServedModel]) -> list[LoadedModel]:
        """Load and warm models, one after the other.

        Raises:
            ConfigError: One cannot be loaded here.
        """
        for one in served:
            self._loaded.append(load_model(one, self._placement, self.lanes.call, self.now))
        return [
            _keyed(loaded, key)
            for loaded, key in zip(self._loaded, self._keys(served), strict=True)
        ]

    def next_end(self) -> End:
        """The next launch that ends."""
        return self._ended.get()

    def identity(self) -> Identity:
        """The processor, the cores of either lane, and the engines that were loaded."""
        lanes = (self._placement.prefix_cores, self._placement.denoise_cores)
        cores = ", ".join(
            f"{name} cores {' '.join(map(str, used)) or 'any'}"
            for name, used in zip(("prefix", "denoise"), lanes, strict=True)
        )
        engines = [f"{name} {metadata.version(name)}" for name in _ENGINES if name in sys.modules]
        precisions = {_precision(loaded) for loaded in self._loaded}
        return Identity(
            device=f"{_processor()}, {cores}",
            engine=", ".join(engines) or "none",
            versions=_versions(),
            precision=", ".join(sorted(precisions)),
        )

    def close(self) -> None:
        """End the lanes and give back the networks."""
        self.lanes.close()
        for loaded in self._loaded:
            loaded.network.close()

    def _take(self, completed: Completed) -> None:
        self._ended.put(End(completed, self.now()))

    def _keys(self, served: Sequence[ServedModel]) -> list[str]:
        """Architectures; of two with one architecture and other shapes the second is set apart."""
        taken: dict[str, str] = {}
        keys: list[str] = []
        for one, loaded in zip(served, self._loaded, strict=True):
            key, digest = loaded.spec.architecture, shapes_digest(one, loaded)
            if taken.setdefault(key, digest) != digest:
                key = f"{key}@{one.name}"
                taken[key] = digest
            keys.append(key)
        return keys


class _NoTimer:
    """Nobody is to be woken: who asks for the next end waits for it himself."""

    def set(self, instant: Nanos | None) -> None:
        """Do nothing."""


class PacedMachine:
    """A paced device, on its own clock.

    Args:
        name: A device of :func:`takt.hardware.known_devices`.
        seed: Makes it a stranger; None: it keeps to the table.
        wait: Told each instant of the device's clock before it shows it, see :func:`sleep_until`;
            None: nobody waits.

    Raises:
        ConfigError: There is no such device, or the process has no descriptor left.
    """

    def __init__(
        self, name: str, seed: int | None = None, *, wait: Callable[[Nanos], None] | None = None
    ) -> None:
        hardware = device_named(name)
        self.units, self.shares = hardware.units, hardware.shares
        self._name, self._seed, self._wait = name, seed, wait
        self._now: Nanos = 0
        self._ended: deque[End] = deque()
        self._device = PacedDevice(name, seed)
        self.lanes: PacedLanes = self._device.open_lanes(
            self._take, clock=self.now, timer=_NoTimer()
        )

    def now(self) -> Nanos:
        """Time that has passed on the device."""
        return self._now

    def load(self, served: Sequence[ServedModel]) -> list[LoadedModel]:
        """The stand-ins; the device alone knows what they take.

        Raises:
            ConfigError: One is no stand-in.
        """
        placement = Placement(kv_slots=128)
        loaded = [load_stand_in(one, placement) for one in served]
        self._device.pace([one.model for one in loaded])
        return loaded

    def next_end(self) -> End:
        """The next launch that ends; the clock then shows its end."""
        while not self._ended:
            end = self.lanes.next_end()
            if end is None:
                raise InvariantError("nothing runs on the paced device, so nothing ends")
            if self._wait is not None:
                self._wait(end)
            self._now = end
            self.lanes.take_ended()
        return self._ended.popleft()

    def identity(self) -> Identity:
        """The GPU by name, and that it was paced."""
        stranger = "" if self._seed is None else f", stranger {self._seed}"
        table = repr((CALIBRATION, device_named(self._name)))
        digest = blake2b(table.encode(), digest_size=6).hexdigest()
        return Identity(
            device=f"paced {self._name}{stranger}",
            engine="paced",
            versions={**_versions(), "table": digest},
            precision="none",
        )

    def close(self) -> None:
        """Forget what runs and give back the timer."""
        self.lanes.close()
        self._device.close()

    def _take(self, completed: Completed) -> None:
        self._ended.append(End(completed, self._now))


def sleep_until(
    clock: Callable[[], Nanos] = time.monotonic_ns,
    sleep: Callable[[float], object] | None = None,
) -> Callable[[Nanos], None]:
    """Waits until so much time has passed since this call."""
    began = clock()
    sleep = sleep or threading.Event().wait

    def wait(instant: Nanos) -> None:
        left = began + instant - clock()
        if left > 0:
            sleep(to_seconds(left))

    return wait


def shapes_digest(served: ServedModel, loaded: LoadedModel) -> str:
    """What a model's times depend on beside its architecture, in a few letters.

    Batch sizes are no part of it: each has times of its own.
    """
    spec = loaded.spec
    named = (
        spec.prefix_inputs,
        spec.kv,
        spec.denoise_inputs,
        spec.action.horizon,
        spec.layouts,
        sorted((name, repr(value)) for name, value in served.options.items()),
    )
    return blake2b(repr(named).encode(), digest_size=6).hexdigest()


def _keyed(loaded: LoadedModel, key: str) -> LoadedModel:
    return replace(
        loaded,
        model=replace(loaded.model, architecture=key),
        solo={work._replace(architecture=key): time for work, time in loaded.solo.items()},
    )


def _precision(loaded: LoadedModel) -> str:
    """The number format a network says it uses; one without numbers says nothing."""
    return cast("str", getattr(loaded.network, "precision", "none"))


def _versions() -> dict[str, str]:
    python = ".".join(map(str, sys.version_info[:3]))
    return {"takt": __version__, "python": python, "numpy": metadata.version("numpy")}


def _processor() -> str:
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return "CPU"
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "CPU")
