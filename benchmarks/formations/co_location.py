"""Several models on a GPU: how many requests each formation misses, and what sharing GPUs buys.

Two kinds of questions, both answered by :func:`measure` of a cell:

- :class:`Misses`: the miss rate of a formation over populations. A rate is one minus attainment,
  over all requests, averaged over draws with common seeds; at each population a formation has the
  prefix batch limit with which it misses least.
- :class:`Placement`: how many robots four GPUs carry when every model is on every GPU, or each GPU
  has one model of its own. Robots of a model are spread over the GPUs that have it, one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from statistics import fmean
from typing import Any

from takt.core.profile import Profile
from takt.core.trace import Setup
from takt.hardware import model_for, profile_for
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.knee import Criterion, serially
from takt.sim.loop import simulate
from takt.sim.network import Wifi7Network
from takt.sim.shapes import Shape, best_shape, limits_of, sound_shapes
from takt.units import SECOND

__all__ = ["DRAWS", "SECONDS", "Misses", "Placement", "co_location_cells"]

DEVICE, RATE_HZ = "rtx-pro-6000", 2.0
DRAWS, SECONDS, WARM_UP_SECONDS = 10, 6, 1
"""Of every population of a miss rate."""
SLOS = {"pi0": 156.0, "pi05": 158.0, "groot-n1.7": 138.0, "xr0": 230.0}
FORMATIONS = ("monolithic", "lockstep")

Loaded = tuple[tuple[str, int], ...]
"""Architecture of each model, and its part of the robots."""

PAIR: Loaded = (("pi0", 1), ("xr0", 1))
FOUR: Loaded = tuple((name, 1) for name in SLOS)
EIGHT: Loaded = tuple((name, 1) for name in SLOS for _ in range(2))
VARIANTS: Loaded = (("pi0", 1),) * 8
EVEN: Loaded = (("pi0", 1),) * 4
UNEVEN: Loaded = (("pi0", 7), ("pi0", 4), ("pi0", 4), ("pi0", 2))
"""28, 16, 16 and 8 robots, a population of the paper."""
CASES: tuple[tuple[Loaded, int, tuple[int, ...]], ...] = (
    (PAIR, 1, (20, 24, 28, 30, 32, 34, 36, 40, 44, 48)),
    (EIGHT, 4, (40, 48, 56, 60, 64, 68, 72, 80, 88, 96, 112, 128, 160)),
    (VARIANTS, 4, (32, 40, 44, 48, 52, 56, 60, 64, 72, 80, 96, 112)),
)
"""What is loaded, on how many GPUs, and the populations to look at: from well below the knees of
both formations to well beyond them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misses:
    """One question: how many requests are missed, over populations?"""

    part: str = "co_location"
    loaded: Loaded
    gpus: int
    formation: str
    populations: tuple[int, ...]

    @property
    def key(self) -> str:
        """Name of the cell in the file."""
        return _key(self)

    def measure(self) -> dict[str, Any]:
        """The miss rate of each population, and the batch limit it belongs to."""
        shapes = limits_of(self.formation, {})
        fleets = _fleets(shapes, self._fleet)
        sound = sound_shapes(shapes, lambda shape: fleets[id(shape)])
        curve: list[list[float]] = []
        for population in self.populations:
            rates = {it.prefix_limit: _miss_rate(fleets[id(it)], population) for it in sound}
            best = min(rates, key=lambda limit: rates[limit])
            curve.append([population, round(rates[best], 5), best])
        return {**asdict(self), "misses": curve}

    def _fleet(self, shape: Shape) -> Fleet:
        everywhere = tuple(range(self.gpus))
        return _fleet(shape, self.loaded, dict.fromkeys(range(len(self.loaded)), everywhere))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One question: how many robots do four GPUs carry?"""

    part: str = "placement"
    loaded: Loaded
    """As many models as GPUs."""
    shares_gpus: bool
    """Whether every model is on every GPU; else each has its own."""
    formation: str = "lockstep"

    @property
    def key(self) -> str:
        """Name of the cell in the file."""
        return _key(self)

    def measure(self) -> dict[str, Any]:
        """The knee of all four GPUs together; the worst model must hold."""
        shapes = limits_of(self.formation, {})
        fleets = _fleets(shapes, self._fleet)
        sound = sound_shapes(shapes, lambda shape: fleets[id(shape)])
        criterion = Criterion(num_draws=10, duration=3 * SECOND, warm_up=1 * SECOND)
        best = best_shape(sound, lambda shape: serially(fleets[id(shape)]), criterion)
        return {
            **asdict(self),
            "robots": best.knee.robots,
            "robots_by_mean": best.knee.robots_by_mean,
            "prefix_limit": best.shape.prefix_limit,
        }

    def _fleet(self, shape: Shape) -> Fleet:
        models = range(len(self.loaded))
        gpus_of = {m: tuple(models) if self.shares_gpus else (m,) for m in models}
        return _fleet(shape, self.loaded, gpus_of)


def co_location_cells() -> Iterator[Misses | Placement]:
    """Every question of this part."""
    for (loaded, gpus, populations), formation in product(CASES, FORMATIONS):
        yield Misses(loaded=loaded, gpus=gpus, formation=formation, populations=populations)
    for loaded, shares_gpus in product((FOUR, EVEN, UNEVEN), (False, True)):
        yield Placement(loaded=loaded, shares_gpus=shares_gpus)


def _key(cell: Misses | Placement) -> str:
    return json.dumps(asdict(cell))


def _fleets(shapes: list[Shape], fleet_of: Callable[[Shape], Fleet]) -> dict[int, Fleet]:
    return {id(shape): fleet_of(shape) for shape in shapes}


def _fleet(shape: Shape, loaded: Loaded, gpus_of: dict[int, tuple[int, ...]]) -> Fleet:
    """Models of the given architectures on the GPUs that each of them has."""
    models = [
        model_for(
            architecture,
            f"{architecture}-{number}",
            SLOS[architecture],
            shape.prefix_sizes,
            shape.denoise_sizes,
            one_layout=True,
        )
        for number, (architecture, _) in enumerate(loaded)
    ]
    profile: Profile = profile_for(DEVICE, models)
    gpus = sorted({gpu for held in gpus_of.values() for gpu in held})
    devices = {
        f"gpu{gpu}": Setup(
            models=tuple(models[m] for m in gpus_of if gpu in gpus_of[m]),
            profile=profile,
            formation=shape.formation,
        )
        for gpu in gpus
    }
    # A model's robots go to its GPUs in turn: parts are the same for each of them.
    groups = tuple(
        RobotGroup(
            model=models[m].name,
            name=f"{models[m].name} on gpu{gpu}",
            count=loaded[m][1],
            device=f"gpu{gpu}",
            rate_hz=RATE_HZ,
        )
        for m, held in gpus_of.items()
        for gpu in held
    )
    return Fleet(devices=devices, robots=groups, network=Wifi7Network())


def _miss_rate(fleet: Fleet, population: int) -> float:
    """Mean over the draws of the part of all requests that were not answered in time."""
    sized = fleet.resized(population)
    rates: list[float] = []
    for seed in range(DRAWS):
        run = simulate(
            sized, duration=SECONDS * SECOND, warm_up=WARM_UP_SECONDS * SECOND, seed=seed
        )
        rates.append(sum(not record.is_met for record in run.records) / len(run.records))
    return fmean(rates)
