"""How attainment falls as a fleet grows, and where it crosses a target.

Each population is simulated with the same seeds. Robots keep their phases and delays when the
fleet grows (common random numbers), so neighbouring points differ by what the added robots do.

Start reading at :func:`attainment_curve`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from takt.core.attainment import lower_bound, summarise, t_interval
from takt.errors import ConfigError
from takt.sim.fleet import Fleet
from takt.sim.loop import simulate
from takt.sim.plot import CurvePoint
from takt.units import SECOND, Nanos

__all__ = ["Curve", "Sweep", "attainment_curve"]

MOST_ROBOTS = 4096
"""No device in sight serves more; a fleet that still holds here has no knee to find."""

NUM_POINTS = 10
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Attainment over population."""

    points: tuple[CurvePoint, ...]
    """Mean and two-sided 95 % interval over seeds, by rising population."""
    bounds: tuple[float, ...]
    """For each point, the attainment its mean exceeds with 95 % confidence, one-sided."""
    knee: int | None
    """Largest population up to which every bound reaches the target; None when not even the
    smallest one's does."""


def attainment_curve(
    fleet: Fleet, sweep: Sweep, progress: Callable[[int], None] = lambda _: None
) -> Curve:
    """Find the knee of ``fleet`` and the curve around it.

    The knee is bracketed by doubling, points are spread over the bracket and around it, and the
    gap that is left at the knee is bisected.

    Args:
        fleet: Its proportions; its size is where the search starts.
        sweep: How each population is simulated.
        progress: Told each population when its runs are done.

    Raises:
        ConfigError: The fleet has no robots.
    """
    search = _Search(fleet, sweep, progress)
    search.bracket(max(fleet.population, 1))
    search.spread()
    search.bisect()
    return search.curve()


class _Search:
    """Populations measured so far."""

    def __init__(self, fleet: Fleet, sweep: Sweep, progress: Callable[[int], None]) -> None:
        self._fleet = fleet
        self._sweep = sweep
        self._progress = progress
        self._points: dict[int, tuple[CurvePoint, float]] = {}

    def bracket(self, population: int) -> None:
        """Measure until one population holds, or is 1, and a larger one fails."""
        if self._holds(population):
            while population < MOST_ROBOTS and self._holds(population):
                population *= 2
        else:
            while population > 1 and not self._holds(population):
                population //= 2

    def spread(self) -> None:
        """Measure evenly from well below the bracket to somewhat above it."""
        knee, fails = self._edge()
        low = max(1, round(0.6 * knee))
        high = round(1.25 * min(fails, 2 * max(knee, 1)))
        step = max(1, round((high - low) / (NUM_POINTS - 1)))
        for population in range(low, high + 1, step):
            self._holds(population)

    def bisect(self) -> None:
        """Close the gap between the knee and the first population that fails."""
        knee, fails = self._edge()
        while fails - knee > 1 and fails <= MOST_ROBOTS:
            self._holds((knee + fails) // 2)
            knee, fails = self._edge()

    def curve(self) -> Curve:
        """What was measured, without the far points of the bracket."""
        knee, _ = self._edge()
        near = [n for n in sorted(self._points) if n <= max(2 * knee, NUM_POINTS)]
        return Curve(
            points=tuple(self._points[n][0] for n in near),
            bounds=tuple(self._points[n][1] for n in near),
            knee=knee or None,
        )

    def _edge(self) -> tuple[int, int]:
        """The knee as far as it is known, 0 for none, and the first population that fails."""
        knee = 0
        for population in sorted(self._points):
            if not self._holds(population):
                return knee, population
            knee = population
        return knee, MOST_ROBOTS + 1

    def _holds(self, population: int) -> bool:
        if population not in self._points:
            self._points[population] = self._measure(population)
            self._progress(population)
        return self._points[population][1] >= self._sweep.target

    def _measure(self, population: int) -> tuple[CurvePoint, float]:
        fleet = self._fleet.resized(population)
        summaries = [
            summarise(
                simulate(
                    fleet, duration=self._sweep.duration, warm_up=self._sweep.warm_up, seed=seed
                ).records
            )
            for seed in self._sweep.seeds
        ]
        attainments = [summary.total.attainment for summary in summaries]
        interval = t_interval(attainments)
        models = sorted({name for summary in summaries for name in summary.by_model})
        by_model = {
            name: fmean(s.by_model[name].attainment for s in summaries if name in s.by_model)
            for name in models
        }
        point = CurvePoint(
            population=population,
            mean=interval.mean,
            low=interval.low,
            high=interval.high,
            by_model=by_model if len(by_model) > 1 else {},
        )
        return point, lower_bound(attainments)
