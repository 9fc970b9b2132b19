"""What is measured on paced devices, and in which order: strangers, contestants and their cells.

A contestant is one knee that is predicted and measured. All are planned first; then they take
turns, a round of each at its predicted knee, one robot more, one less, and further outward until a
population that holds stands beside one that does not.

Start reading at :func:`cells_of`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from benchmarks.truth.paced_section import knee_of
from benchmarks.truth.part import Cell, Found

__all__ = ["FLEETS", "Contestant", "PacedFleet", "cells_of", "populations"]

MOST_STEPS = 4
"""Populations looked at on either side of the predicted knee."""
OUTSIDE_ROBOTS = 24
"""Robots with which the computer's own part is measured, about as many as a knee has: a computer
that idles between requests needs longer for each, 0.5 ms from launch to launch with 8 robots and
0.3 with 24."""
CPU_MODELS = (
    "mini",
    "echo",
    "pi0=tests/golden/policies/pi0_relative/checkpoint",
    "smolvla=tests/golden/policies/smolvla/checkpoint",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedFleet:
    """Robots, and the GPU that is played for them."""

    gpu: str
    models: tuple[str, ...]
    """As many robots of each."""


FLEETS = {
    "pi0": PacedFleet(gpu="rtx-pro-6000", models=("pi0",)),
    # On the larger GPU 130 robots would send 400 MB/s, and the computer were the limit.
    "smolvla": PacedFleet(gpu="a6000", models=("smolvla",)),
    "mix": PacedFleet(gpu="rtx-pro-6000", models=("pi0", "smolvla")),
}
"""Every model has a fleet of its own name."""


class Contestant(NamedTuple):
    """One knee that is predicted and measured."""

    fleet: str
    seed: int
    formation: str
    """``auto`` is the best by prediction."""

    def __str__(self) -> str:
        return f"{self.fleet}, stranger {self.seed}, {self.formation}"


class Extent(NamedTuple):
    """How much is measured."""

    fleets: tuple[str, ...]
    ranked: tuple[int, ...]
    """Strangers on which every formation is measured."""
    others: tuple[int, ...]
    """Strangers on which the best one is."""
    formations: tuple[str, ...]
    epochs: int
    seconds: float
    """Length of an epoch: the robots' phases repeat twice a second, so it need not be long."""
    rounds: int
    """How often the computer's own part is measured: from minute to minute it changes by a
    fifth."""

    def models(self) -> list[str]:
        """All of them, each once."""
        return list(dict.fromkeys(name for fleet in self.fleets for name in FLEETS[fleet].models))

    def contestants(self) -> list[Contestant]:
        """All of them: those that are compared stand together."""
        ranked = [
            Contestant(fleet, seed, formation)
            for seed in self.ranked
            for fleet in self.fleets
            for formation in self.formations
        ]
        return ranked + [
            Contestant(fleet, seed, "auto") for seed in self.others for fleet in self.fleets
        ]


FULL = Extent(
    fleets=("pi0", "smolvla", "mix"),
    ranked=(1,),
    others=(2, 3),
    formations=("lockstep", "flowing", "monolithic"),
    epochs=5,
    seconds=4.0,
    rounds=3,
)
QUICK = Extent(
    fleets=("mix",),
    ranked=(1,),
    others=(),
    formations=("lockstep", "monolithic"),
    epochs=2,
    seconds=1.0,
    rounds=1,
)


def cells_of(quick: bool, found: Found) -> list[Cell]:
    """Profiles, plans, then populations in rounds; see :meth:`Part.cells`."""
    extent = QUICK if quick else FULL
    contestants = extent.contestants()
    strangers = list(dict.fromkeys((it.fleet, it.seed) for it in contestants))
    return [
        *(_profile_cell(fleet, seed) for fleet, seed in strangers),
        *(_outside_cell(model, 1, extent) for model in extent.models()),
        _cores_cell(quick),
        *(
            _outside_cell(model, number, extent)
            for number in range(2, extent.rounds + 1)
            for model in extent.models()
        ),
        *(_plan_cell(contestant, extent) for contestant in contestants),
        *_population_cells(contestants, extent, found),
    ]


def populations(predicted: int, attainments: Mapping[int, float]) -> list[int]:
    """Populations to measure, in order: the knee and its neighbours, then outward.

    Args:
        predicted: The knee.
        attainments: What was measured so far.
    """
    around = [it for it in (predicted, predicted + 1, predicted - 1) if it > 0]
    wanted = [*around, *(it for it in sorted(attainments) if it not in around)]
    if any(it not in attainments for it in around):
        return wanted
    knee = knee_of(attainments)
    following = min(attainments) - 1 if knee.robots is None else max(attainments) + 1
    if not knee.is_bracketed and following > 0 and abs(following - predicted) <= MOST_STEPS:
        wanted.append(following)
    return wanted


def _population_cells(
    contestants: Sequence[Contestant], extent: Extent, found: Found
) -> list[Cell]:
    """A round of every contestant at its own predicted knee, then the next round."""
    wanted: list[list[Cell]] = []
    for contestant in contestants:
        planned = found.get(f"plan {contestant}")
        if planned is None:
            continue
        sizes = populations(planned["predicted"], attainments_of(contestant, found))
        wanted.append([_population_cell(contestant, size, extent) for size in sizes])
    return [cell for row in zip_longest(*wanted) for cell in row if cell is not None]


def attainments_of(contestant: Contestant, found: Found) -> dict[int, float]:
    """Populations that were measured, and their mean attainment."""
    start = f"measure {contestant} at "
    return {
        int(key.removeprefix(start)): result["attainment"]
        for key, result in found.items()
        if key.startswith(start)
    }


def _profile_cell(fleet: str, seed: int) -> Cell:
    settings = {"step": "profile", "fleet": fleet, "seed": seed}
    return Cell(key=f"profile {fleet}, stranger {seed}", seconds=5, settings=settings)


def _outside_cell(model: str, number: int, extent: Extent) -> Cell:
    settings = {"step": "outside", "model": model, "seed": extent.ranked[0], **_draws(extent)}
    key = f"outside {model}, round {number}"
    return Cell(key=key, seconds=_bench_seconds(extent), settings=settings)


def _plan_cell(contestant: Contestant, extent: Extent) -> Cell:
    settings = {"step": "plan", **contestant._asdict(), **_draws(extent)}
    return Cell(key=f"plan {contestant}", seconds=12, settings=settings)


def _population_cell(contestant: Contestant, robots: int, extent: Extent) -> Cell:
    settings = {
        "step": "population",
        **contestant._asdict(),
        "robots": robots,
        **_draws(extent),
    }
    key = f"measure {contestant} at {robots}"
    return Cell(key=key, seconds=_bench_seconds(extent), settings=settings)


def _draws(extent: Extent) -> dict[str, Any]:
    return {"epochs": extent.epochs, "seconds": extent.seconds}


def _bench_seconds(extent: Extent) -> float:
    return 4 + extent.epochs * (extent.seconds + 0.6)


def _cores_cell(quick: bool) -> Cell:
    """How long it takes to profile this computer's own cores."""
    models = ("echo",) if quick else CPU_MODELS
    options = ("--most-seconds=0.2",) if quick else ()
    settings = {"step": "cpu", "models": models, "options": options}
    return Cell(key="profile of cores", seconds=60 * len(models), settings=settings)
