"""Builds the table of times the scheduler, the simulator and paced devices look up.

A profile built here is modelled, not measured. It has every launch of the given models: each
captured batch size, each layout, each share of the device. For pairs it has a prefix on any share
beside a denoise launch on the whole device, which is how ``takt.core`` puts two lanes on a device,
and any two launches on the shares of 2, 3 or 4 replicas. It also has the time a row's key/value
cache takes to another device.

What one launch does to the other is the least certain part and holds three assumptions. A denoise
launch finds the SMs the prefix leaves free, at least :data:`UNGUARDED` of the device when the
prefix is not held back. It then shares the memory bandwidth with the prefix, which costs it
``interference`` times the part of the bandwidth the prefix uses. The prefix loses the same way,
0.4 times ``interference``. Replicas have SMs of their own, so they lose only by the bandwidth: a
denoise launch as beside a prefix, but at least what it takes until the two together ask for no
more than the bandwidth that is reached. Sweep ``interference`` before believing a result that
depends on it.

Start reading at :func:`profile_for`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from takt.core.model import Model
from takt.core.profile import Profile, Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.hardware.architectures import Architecture, Layout, architecture_named
from takt.hardware.calibration import CALIBRATION, DEFAULT_STACK, Stack, stack_named
from takt.hardware.devices import Device, device_named
from takt.hardware.roofline import stage_seconds, traffic_bytes
from takt.units import Nanos, ms, seconds

__all__ = ["DEFAULT_INTERFERENCE", "UNGUARDED", "model_for", "profile_for"]

DEFAULT_INTERFERENCE = 0.25
"""Slowdown of a denoise launch by a prefix that takes all memory bandwidth. Assumed; results are
to be shown over 0, 0.12, 0.25 and 0.5."""
UNGUARDED = 0.125
"""Part of the SMs a denoise launch finds beside a prefix that may use them all. Assumed."""
_PREFIX_PART = 0.4
"""Slowdown of a prefix beside a denoise launch, over ``interference``: 1.1 by default. Assumed."""
_REPLICAS = (2, 3, 4)
"""Numbers of replicas a device may be split into."""
_LINK_GBS = 12.0
"""Rate at which a cache crosses from a device to the host and from there to another device, in
gigabytes per second each way: pinned memory over PCIe, as stage-pipelined engines do. Assumed."""
_LINK_MS = 0.3
"""Time each crossing takes besides. Assumed."""


def model_for(
    architecture: str,
    name: str | None = None,
    slo_ms: float | None = None,
    prefix_sizes: Sequence[int] = (1, 2, 4),
    denoise_sizes: Sequence[int] = (1, 2, 4, 8, 16),
    *,
    one_layout: bool = False,
) -> Model:
    """A model of a known architecture, as the scheduler sees it.

    Args:
        architecture: Name of the architecture, see :func:`~takt.hardware.known_architectures`.
        name: Name robots ask for; the architecture's by default.
        slo_ms: Its promise; the architecture's by default (published for pi0, ours for others).
        prefix_sizes: Captured batch sizes of the prefix, rising.
        denoise_sizes: Captured batch sizes of the denoise loop, rising.
        one_layout: Capture only the layout that holds every row, as servers do that compute
            masked cameras and the padding of prompts.

    Raises:
        ConfigError: The architecture is unknown, or a size or the promise is impossible.
    """
    network = architecture_named(architecture)
    promise = network.slo_ms if slo_ms is None else slo_ms
    if not math.isfinite(promise):
        raise ConfigError(f"slo_ms must be a positive number, got {promise}")
    return Model(
        name=name or architecture,
        architecture=architecture,
        slo=ms(promise),
        prefix_sizes=tuple(prefix_sizes),
        denoise_sizes=tuple(denoise_sizes),
        steps=network.steps,
        holds=(1,) if one_layout else network.holds,
    )


def profile_for(
    device_name: str,
    models: Sequence[Model],
    *,
    stack: str = DEFAULT_STACK,
    interference: float = DEFAULT_INTERFERENCE,
    shares: Sequence[int] | None = None,
) -> Profile:
    """The modelled profile of a device that serves ``models``.

    Args:
        device_name: Name of the device, see :func:`~takt.hardware.known_devices`.
        models: Models by :func:`model_for`, or by hand: their layouts are those of the
            architecture, or the one that holds every row. Variants of one architecture share
            entries and must have the same layouts; their batch sizes may differ.
        stack: How the networks are run, see :func:`~takt.hardware.known_stacks`.
        interference: Slowdown of a denoise launch by a prefix that takes all memory bandwidth,
            0 to 1. At 0 the two still share the SMs.
        shares: SM counts a launch may be held to, rising, the whole device last; by default at
            most a dozen from a quarter of the device on.

    Raises:
        ConfigError: A name is unknown, or the models, shares or interference are impossible.
    """
    device = device_named(device_name)
    if not 0 <= interference <= 1:
        raise ConfigError(f"interference must lie between 0 and 1, got {interference}")
    candidates = device.shares if shares is None else _checked(shares, device)
    table = _Table(device, stack_named(stack), _layouts(models))
    works = list(_works(models, candidates))
    return Profile(
        units=device.units,
        shares=candidates,
        solo={work: table.solo(work) for work in works},
        slowdown={
            **dict(_slowdowns(table, works, interference)),
            **dict(_replica_slowdowns(table, works, candidates, interference)),
        },
        transfer=dict(_transfers(table)),
    )


def _checked(shares: Sequence[int], device: Device) -> tuple[int, ...]:
    off = [share for share in shares[:-1] if share % device.granularity]
    if off:
        raise ConfigError(
            f"shares of {device.title} come in multiples of {device.granularity} SMs, got {off}",
        )
    return tuple(shares)


def _layouts(models: Sequence[Model]) -> Mapping[str, tuple[Layout, ...]]:
    """The layouts of each architecture, by their number."""
    if not models:
        raise ConfigError("a profile needs at least one model")
    by_name: dict[str, tuple[Layout, ...]] = {}
    for model in models:
        network = architecture_named(model.architecture)
        if model.holds not in ((1,), network.holds):
            raise ConfigError(
                f"model {model.name!r}: holds must be {network.holds}, the layouts of"
                f" {network.name}, or (1,), got {model.holds}",
            )
        layouts = network.layouts[-len(model.holds) :]
        if by_name.setdefault(network.name, layouts) != layouts:
            raise ConfigError(
                f"model {model.name!r}: its layouts differ from those of another variant of"
                f" {network.name}; variants share profile entries",
            )
    return by_name


def _works(models: Sequence[Model], shares: Sequence[int]) -> Iterator[Work]:
    """Every launch of the models, once."""
    keys = {
        (model.architecture, stage, layout, size): None
        for model in models
        for stage in Stage
        for layout in range(len(model.holds))
        for size in model.sizes(stage)
    }
    for key in keys:
        for share in shares:
            yield Work(*key, share)


def _slowdowns(
    table: _Table, works: Sequence[Work], interference: float
) -> Iterator[tuple[tuple[Work, Work], float]]:
    """Both sides of every pair: a prefix on any share, a denoise launch on the whole device."""
    units = table.device.units
    prefixes = [work for work in works if work.stage is Stage.PREFIX]
    denoises = [work for work in works if work.stage is Stage.DENOISE and work.share == units]
    for prefix in prefixes:
        held = prefix.share / units
        free = max(1 - held, UNGUARDED)
        keeps = min(held, 1 - UNGUARDED)
        prefix_slowdown = (1 + _PREFIX_PART * interference) * table.ratio(prefix, keeps)
        contention = 1 + interference * table.bandwidth_used(prefix)
        for denoise in denoises:
            yield (prefix, denoise), prefix_slowdown
            yield (denoise, prefix), contention * table.ratio(denoise, free)


def _replica_slowdowns(
    table: _Table, works: Sequence[Work], shares: Sequence[int], interference: float
) -> Iterator[tuple[tuple[Work, Work], float]]:
    """Every pair of launches on the shares of replicas."""
    for replicas in _REPLICAS:
        share = max((s for s in shares if s * replicas <= table.device.units), default=None)
        held = [work for work in works if work.share == share]
        used = {work: table.bandwidth_used(work) for work in held}
        for work, beside in product(held, held):
            if work.stage is Stage.PREFIX:
                yield (work, beside), 1 + _PREFIX_PART * interference
            else:
                asked = (used[work] + used[beside]) / CALIBRATION.bandwidth
                yield (work, beside), max(1 + interference * used[beside], asked)


def _transfers(table: _Table) -> Iterator[tuple[tuple[str, int], Nanos]]:
    for name, layouts in table.layouts.items():
        for number, layout in enumerate(layouts):
            crossing = architecture_named(name).cache_bytes(layout) / (_LINK_GBS * 1e9)
            yield (name, number), seconds(2 * crossing) + ms(_LINK_MS)


class _Table:
    """Times on one device with one stack, each worked out once."""

    def __init__(
        self, device: Device, stack: Stack, layouts: Mapping[str, tuple[Layout, ...]]
    ) -> None:
        self.device = device
        self.layouts = layouts
        self._stack = stack
        self._known: dict[tuple[Work, float], float] = {}

    def solo(self, work: Work) -> Nanos:
        """Time of a launch that runs alone."""
        return seconds(self._seconds(work, work.share / self.device.units))

    def ratio(self, work: Work, share: float) -> float:
        """Time of a launch on another share of the device over its time alone."""
        return self._seconds(work, share) / self._seconds(work, work.share / self.device.units)

    def bandwidth_used(self, work: Work) -> float:
        """Part of the memory bandwidth a launch uses while it runs, 0 to 1."""
        network = architecture_named(work.architecture)
        cost = network.cost(work.stage, self.layouts[work.architecture][work.layout])
        rate = traffic_bytes(cost, self._stack, work.size) / self._seconds(
            work, work.share / self.device.units
        )
        return rate / (self.device.bandwidth_tbs * 1e12)

    def _seconds(self, work: Work, share: float) -> float:
        # The share a launch is held to is not the share asked about.
        key = work._replace(share=0), share
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = stage_seconds(
                _network(work),
                work.stage,
                self.layouts[work.architecture][work.layout],
                self.device,
                self._stack,
                size=work.size,
                share=share,
            )
        return known


def _network(work: Work) -> Architecture:
    return architecture_named(work.architecture)
