"""How attainment falls as a fleet grows, and where it crosses a target.

Each population is simulated with the same seeds. Robots keep their phases and jitter when the
fleet grows (common random numbers), so neighbouring points differ by what the added robots do.

Start reading at :func:`attainment_curve`; :func:`search_curve` is the search alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from takt.core.attainment import Summary, lower_bound, summarise, t_interval
from takt.errors import ConfigError
from takt.sim.fleet import Fleet
from takt.sim.loop import simulate
from takt.sim.plot import CurvePoint
from takt.units import SECOND, Nanos

__all__ = ["MOST_SEARCHED", "Curve", "Measured", "Sweep", "attainment_curve", "search_curve"]

MOST_SEARCHED = 4096
"""Largest population that is tried. No device in sight serves more; a fleet that still holds here
has no knee to find."""

_NUM_POINTS = 10
"""Points drawn around the knee."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """How each population is simulated."""

    duration: Nanos = 30 * SECOND
    """Time reported on per run."""
    warm_up: Nanos = 3 * SECOND
    """Time before it."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One run per seed; at least two, for the interval."""
    target: float = 0.98
    """Attainment the fleet must reach."""

    def __post_init__(self) -> None:
        if len(self.seeds) < 2:  # noqa: PLR2004 - one run has no spread
            raise ConfigError(f"a curve needs at least 2 seeds, got {len(self.seeds)}")
        if not 0 < self.target < 1:
            raise ConfigError(f"target must lie between 0 and 1, got {self.target}")


class Measured(NamedTuple):
    """One population, simulated with every seed."""

    point: CurvePoint
    bound: float
    """Attainment that the mean over seeds exceeds with 95 % confidence, one-sided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Attainment over population."""

    points: tuple[CurvePoint, ...]
    """Mean and two-sided 95 % interval over seeds, by rising population."""
    bounds: tuple[float, ...]
    """The bound of each point."""
    target: float
    """Attainment the fleet must reach."""
    knee: int | None
    """Largest population up to which every bound reaches the target; None when not even the
    smallest one's does."""


def attainment_curve(
    fleet: Fleet, sweep: Sweep, progress: Callable[[int], None] = lambda _: None
) -> Curve:
    """Find the knee of ``fleet`` and the curve around it.

    Args:
        fleet: Its proportions; its size is where the search starts.
        sweep: How each population is simulated.
        progress: Told each population when its runs are done.

    Raises:
        ConfigError: The fleet has no robots, or too small a one sends nothing in the time given.
    """

    def measure(population: int) -> Measured:
        measured = _measure(fleet.resized(population), sweep)
        progress(population)
        return measured

    return search_curve(measure, start=fleet.population, target=sweep.target)


def search_curve(measure: Callable[[int], Measured], *, start: int, target: float) -> Curve:
    """Find the knee of what ``measure`` tells of a population, and the curve around it.

    The knee is bracketed by doubling, points are spread over the bracket and around it, and the
    gap that is left at the knee is bisected. No population is measured twice.

    Args:
        measure: Measures one population, from 1 to :data:`MOST_SEARCHED`.
        start: Population to begin with.
        target: Bound that a population must reach to hold.
    """
    search = _Search(measure, target)
    search.bracket(min(max(start, 1), MOST_SEARCHED))
    search.spread()
    search.bisect()
    return search.curve()


class _Search:
    """Populations measured so far."""

    def __init__(self, measure: Callable[[int], Measured], target: float) -> None:
        self._measure = measure
        self._target = target
        self._measured: dict[int, Measured] = {}

    def bracket(self, population: int) -> None:
        """Measure until one population holds, or is 1, and a larger one fails."""
        while population < MOST_SEARCHED and self._holds(population):
            population = min(2 * population, MOST_SEARCHED)
        while population > 1 and not self._holds(population):
            population //= 2

    def spread(self) -> None:
        """Measure evenly from well below the bracket to somewhat above it."""
        knee, fails = self._edge()
        low = max(1, round(0.6 * knee))
        high = min(round(1.25 * min(fails, 2 * max(knee, 1))), MOST_SEARCHED)
        step = max(1, round((high - low) / (_NUM_POINTS - 1)))
        for population in range(low, high + 1, step):
            self._holds(population)

    def bisect(self) -> None:
        """Close the gap between the knee and the first population that fails."""
        knee, fails = self._edge()
        while fails - knee > 1:
            self._holds((knee + fails) // 2)
            knee, fails = self._edge()

    def curve(self) -> Curve:
        """What was measured, without the far points of the bracket."""
        knee, _ = self._edge()
        near = [n for n in sorted(self._measured) if n <= max(2 * knee, _NUM_POINTS)]
        return Curve(
            points=tuple(self._measured[n].point for n in near),
            bounds=tuple(self._measured[n].bound for n in near),
            target=self._target,
            knee=knee or None,
        )

    def _edge(self) -> tuple[int, int]:
        """The knee as far as it is known, 0 for none, and the first population that fails."""
        knee = 0
        for population in sorted(self._measured):
            if not self._holds(population):
                return knee, population
            knee = population
        return knee, knee + 1  # none failed, so the largest of all was measured

    def _holds(self, population: int) -> bool:
        if population not in self._measured:
            self._measured[population] = self._measure(population)
        return self._measured[population].bound >= self._target


def _measure(fleet: Fleet, sweep: Sweep) -> Measured:
    summaries = [_summary(fleet, sweep, seed) for seed in sweep.seeds]
    attainments = [summary.total.attainment for summary in summaries]
    interval = t_interval(attainments)
    models = sorted({name for summary in summaries for name in summary.by_model})
    by_model = {
        name: fmean(s.by_model[name].attainment for s in summaries if name in s.by_model)
        for name in models
    }
    point = CurvePoint(
        population=fleet.population,
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        by_model=by_model if len(by_model) > 1 else {},
    )
    return Measured(point, lower_bound(attainments))


def _summary(fleet: Fleet, sweep: Sweep, seed: int) -> Summary:
    run = simulate(fleet, duration=sweep.duration, warm_up=sweep.warm_up, seed=seed)
    if not run.records:
        raise ConfigError(
            f"a population of {fleet.population} sent nothing in {sweep.duration / SECOND:g} s:"
            " simulate longer"
        )
    return summarise(run.records)
