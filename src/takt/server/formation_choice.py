"""Which formation drives a device, for the robots that are declared.

Each formation a worker can run is raced in the simulator with the times of the device, by the same
search as ``takt plan``, with fewer and shorter draws and a limit on the time it may take. The one
that carries the most robots in the proportions of the declared fleet wins; of equals lockstep, then
flowing. Nothing is chosen behind anybody's back: :attr:`Choice.reason` is printed.

While the server runs, :mod:`takt.server.reevaluation` has the choice made again for the robots that
really ask; :meth:`Choice.is_better` says whether it is worth a change.

Start reading at :func:`choose_formations`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.scheduler import Lateness
from takt.core.trace import Setup
from takt.errors import ConfigError
from takt.runtime.limits import narrowed
from takt.server.composition import DevicePlan, ServerPlan
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.knee import Criterion, Draw, Job, Knee, Measured, Runner, find_knee
from takt.sim.network import Network
from takt.sim.shapes import GATHERED, Shape, best_shape, limits_of, sound_shapes
from takt.units import SECOND, Nanos, to_seconds

__all__ = [
    "AUTO",
    "WITHIN",
    "Candidate",
    "Choice",
    "ChosenDevice",
    "Load",
    "choose_formation",
    "choose_formations",
    "driven_in",
    "shapes_here",
]

AUTO = "auto"
"""What a device's formation is called where it is to be chosen."""
WITHIN: Nanos = 60 * SECOND
"""Time a choice may take; what was not simulated by then is not chosen."""

_WORTH_PERCENT = 5
"""Least gain for which a formation is changed; draws of a choice differ by less."""
_CRITERION = Criterion(num_draws=5, duration=20 * SECOND, warm_up=2 * SECOND)
_FORMATIONS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "lockstep": ({}, *({"gathering": rows} for rows in GATHERED)),
    "flowing": ({}, *({"gathering": rows} for rows in GATHERED)),
    "monolithic": ({},),
}
"""What a worker can run, with options, the one to beat first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a device is to carry, and its times."""

    models: tuple[Model, ...]
    """As they are captured."""
    profile: Profile
    robots: tuple[RobotGroup, ...]
    network: Network
    spread: float = 0.0
    """Of its launches, see :attr:`takt.sim.fleet.Fleet.spreads`."""


class Candidate(NamedTuple):
    """What was seen of a formation, in its best shape."""

    shape: Shape
    robots: int
    """Predicted knee; where it was not worth finding, the most robots that seemed to hold, 0 when
    none were seen to."""
    fails_at: int | None
    """Fewest robots of which it was seen to fail."""

    def __str__(self) -> str:
        if self.robots:
            return f"{self.shape} {self.robots}"
        if self.fails_at is None:
            return f"{self.shape} not simulated in time"
        return f"{self.shape} fewer than {self.fails_at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was chosen, and what else was looked at."""

    shape: Shape
    batches: tuple[int, int]
    """Largest prefix and denoise batches, of those that are captured."""
    candidates: tuple[Candidate, ...]
    """One per formation, the chosen one first."""
    declared: int
    """Robots of the declared fleet."""
    took: Nanos
    is_complete: bool
    """Whether the time was enough to find the knee."""
    present: Candidate | None = None
    """The shape the device is driven in, where there is one, as it carries these robots."""

    @property
    def is_better(self) -> bool:
        """Whether the present shape should give way: the chosen one carries a twentieth more."""
        if self.present is None or not self.is_complete or self.shape == self.present.shape:
            return False
        chosen, present = self.candidates[0].robots, self.present.robots
        return chosen > present and 100 * chosen >= (100 + _WORTH_PERCENT) * present

    @property
    def reason(self) -> str:
        """One line for the operator."""
        chosen, *others = self.candidates
        carries = f"{chosen.robots} robots predicted" if chosen.robots else "nothing simulated"
        cut = "" if self.is_complete else ", cut off"
        return (
            f"formation {self.shape}, batches up to {self.batches[0]} and {self.batches[1]}:"
            f" {carries}, {self.declared} declared;"
            f" {', '.join(map(str, others))} (simulated, {to_seconds(self.took):.0f} s{cut})"
        )


class ChosenDevice(NamedTuple):
    """A device whose formation was chosen, and what for."""

    plan: DevicePlan
    load: Load
    shape: Shape


def choose_formations(
    plan: ServerPlan,
    load_of: Callable[[DevicePlan], Load],
    runner: Callable[[Fleet], Runner],
    say: Callable[[str], None],
    keep: Callable[[ChosenDevice], None] = lambda _: None,
) -> ServerPlan:
    """The plan with a formation for each device that has none yet.

    Args:
        plan: Devices whose formation is :data:`AUTO`, among others.
        load_of: What such a device is to carry.
        runner: Simulates a fleet, see :func:`takt.sim.knee.serially`.
        say: Told the reason of each choice.
        keep: Told what was chosen, for whoever reconsiders it.

    Raises:
        ConfigError: A device's load says too little to choose by.
    """
    devices: list[DevicePlan] = []
    for device in plan.devices:
        if device.formation == AUTO:
            try:
                load = load_of(device)
                choice = choose_formation(load, device, runner)
            except ConfigError as error:
                raise ConfigError(f"devices.{device.name}: formation auto: {error}") from None
            say(f"{device.name}: {choice.reason}" if len(plan.devices) > 1 else choice.reason)
            device = _decided(device, choice.shape)
            keep(ChosenDevice(device, load, choice.shape))
        devices.append(device)
    return dataclasses.replace(plan, devices=tuple(devices))


def choose_formation(
    load: Load,
    device: DevicePlan,
    runner: Callable[[Fleet], Runner],
    *,
    present: Shape | None = None,
    within: Nanos = WITHIN,
    clock: Callable[[], Nanos] = time.monotonic_ns,
) -> Choice:
    """Choose for one device.

    Args:
        load: What it is to carry.
        device: Its discipline and its rule for late requests.
        runner: Simulates a fleet.
        present: The shape it is driven in, if any: it is always simulated to the end.
        within: Time the choice may take.
        clock: Monotonic, in nanoseconds.

    Raises:
        ConfigError: No robots are declared, or the profile lacks a launch.
    """
    declared = sum(group.count for group in load.robots)
    if not declared:
        raise ConfigError("no robots of this device are declared; declare them, or name one")
    began = clock()
    fleets = _Fleets(load, device)
    shapes = sound_shapes(shapes_here(load.models), fleets.of)
    race = _Race(lambda shape: runner(fleets.of(shape)), began + within, clock)
    driven = next((shape for shape in shapes if shape == present), None)
    is_complete = True
    try:
        shape = best_shape(shapes, race.runner, _CRITERION, race.take).shape
        if driven is not None:
            if not race.is_final(driven):
                race.find_knee(driven)
            shape = max(driven, shape, key=race.held)
        # Its knee may lie below where it seemed to be, and below where another one's seems to be.
        while (rival := max(shapes, key=race.held)) is not shape and not race.is_final(rival):
            race.find_knee(rival)
            shape = max(shape, rival, key=race.held)
    except _TimeIsUpError:
        shape, is_complete = max(shapes, key=race.held), False
    return Choice(
        shape=shape,
        batches=_largest(driven_in(load.models, shape)),
        candidates=(Candidate(shape, race.held(shape), None), *race.others(shapes, shape)),
        declared=declared,
        took=clock() - began,
        is_complete=is_complete,
        present=present and Candidate(present, race.held(driven) if driven else 0, None),
    )


def _largest(models: Sequence[Model]) -> tuple[int, int]:
    """The largest prefix and the largest denoise batch of any of ``models``."""
    return (
        max(model.prefix_sizes[-1] for model in models),
        max((size for model in models for size in model.denoise_sizes), default=0),
    )


def shapes_here(models: Sequence[Model], formation: str = AUTO) -> list[Shape]:
    """The shapes a worker can drive ``models`` in, within their captured sizes.

    Raises:
        ConfigError: A worker cannot drive the formation.
    """
    if formation not in (AUTO, *_FORMATIONS):
        known = ", ".join((AUTO, *_FORMATIONS))
        raise ConfigError(f"formation {formation!r}: of a worker's device expected {known}")
    captured = sorted({size for model in models for size in model.prefix_sizes})
    return [
        shape
        for name in (_FORMATIONS if formation == AUTO else (formation,))
        for options in _FORMATIONS[name]
        for shape in limits_of(name, options, captured)
    ]


def driven_in(models: Iterable[Model], shape: Shape) -> tuple[Model, ...]:
    """``models`` as a shape lets them be scheduled."""
    return tuple(narrowed(model, shape.prefix_limit, shape.denoise_limit) for model in models)


class _Fleets:
    """The fleet in each shape, built once."""

    def __init__(self, load: Load, device: DevicePlan) -> None:
        self._load = load
        self._device = device
        self._built: dict[int, Fleet] = {}
        self._shapes: list[Shape] = []

    def of(self, shape: Shape) -> Fleet:
        fleet = self._built.get(id(shape))
        if fleet is None:
            fleet = self._built[id(shape)] = self._build(shape)
            self._shapes.append(shape)  # keeps its id from being given to another
        return fleet

    def _build(self, shape: Shape) -> Fleet:
        setup = Setup(
            models=driven_in(self._load.models, shape),
            profile=self._load.profile,
            formation=shape.formation,
            options=shape.options,
            discipline=self._device.discipline,
            lateness=Lateness(self._device.lateness),
        )
        return Fleet(
            devices={self._device.name: setup},
            robots=self._load.robots,
            network=self._load.network,
            spreads={self._device.name: self._load.spread},
        )


class _TimeIsUpError(Exception):
    """A choice has taken its time."""


class _Race:
    """Keeps what is seen of each shape while they are raced."""

    def __init__(
        self, runner: Callable[[Shape], Runner], end: Nanos, clock: Callable[[], Nanos]
    ) -> None:
        self._runner = runner
        self._end = end
        self._clock = clock
        self._held: dict[int, int] = {}
        self._failed: dict[int, int] = {}
        self._finals: dict[int, list[Measured]] = {}

    def runner(self, shape: Shape) -> Runner:
        """Simulates a shape until the time is up."""
        run = self._runner(shape)

        def watched(jobs: Sequence[Job]) -> Iterable[Draw]:
            if self._clock() >= self._end:
                raise _TimeIsUpError
            draws = list(run(jobs))
            if draws:
                self._see(shape, jobs[0].population, fmean(drawn.attainment for drawn in draws))
            return draws

        return watched

    def take(self, shape: Shape, measured: Measured | None) -> None:
        """A population of a finalist was decided."""
        if measured is not None:
            self._finals.setdefault(id(shape), []).append(measured)

    def is_final(self, shape: Shape) -> bool:
        """Whether its knee was looked for."""
        return id(shape) in self._finals

    def find_knee(self, shape: Shape) -> None:
        """Look for the knee of a shape that seems to carry more than the finalists."""
        near = self.held(shape)
        find_knee(self.runner(shape), _CRITERION, near=near, progress=partial(self.take, shape))

    def held(self, shape: Shape) -> int:
        """The knee of a finalist, of others the most robots that seemed to hold."""
        final = sorted(self._finals.get(id(shape), ()), key=lambda it: it.population)
        if final:
            return Knee(target=_CRITERION.target, measured=tuple(final)).robots
        return self._held.get(id(shape), 0)

    def others(self, shapes: Sequence[Shape], chosen: Shape) -> list[Candidate]:
        """The best shape of each formation but the chosen one."""
        names = [name for name in _FORMATIONS if name != chosen.formation]
        best = [
            max((s for s in shapes if s.formation == name), key=self.held, default=None)
            for name in names
        ]
        return [
            Candidate(shape, self.held(shape), self._failed.get(id(shape)))
            for shape in best
            if shape is not None
        ]

    def _see(self, shape: Shape, population: int, attainment: float) -> None:
        if attainment >= _CRITERION.target:
            self._held[id(shape)] = max(population, self.held(shape))
        else:
            failed = self._failed.get(id(shape), population)
            self._failed[id(shape)] = min(population, failed)


def _decided(device: DevicePlan, shape: Shape) -> DevicePlan:
    return dataclasses.replace(
        device,
        formation=shape.formation,
        options=dict(shape.options),
        prefix_limit=shape.prefix_limit,
        denoise_limit=shape.denoise_limit,
    )
