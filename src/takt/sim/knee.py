"""How many robots a fleet's devices carry: the knee of attainment over population.

A *draw* is one simulation: every robot's phase, jitter and delays are drawn from its seed. Robots
keep theirs when the fleet grows (common random numbers), and so they do from one formation to the
next, so that two capacities differ by the formations and not by luck.

The rule, of which nothing is estimated or fitted:

1. A population *holds* when the lower 95 % bound, one-sided, of its mean attainment over the draws
   reaches the target.
2. Populations are bracketed with a few short draws, then measured upwards from 0.7 times the
   bracket until one fails, and one more; where the first one does not hold, also downwards until
   one does. The knee is the largest population up to which all hold.
3. A population whose first draws leave no doubt, by the same bound at 99 %, is not drawn further.
   Draws in which nobody is late agree exactly, and their bound says nothing; so a population holds
   early only when enough robots were seen, see :meth:`Measured.is_sure`. Below 0.9 times the
   bracket only every tenth part of it is looked at.

Beside it stands the criterion of Robion (arXiv 2609.12075), the mean over the first five draws: it
is more generous, and it is the one to show beside that paper's figures.

Start reading at :func:`find_knee`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple, TypeAlias

from takt.core.attainment import Interval, lower_bound, t_interval
from takt.errors import ConfigError
from takt.sim.fleet import Fleet
from takt.sim.loop import Run, simulate
from takt.units import SECOND, Nanos

__all__ = [
    "EPOCHS",
    "MOST_ROBOTS",
    "Criterion",
    "Draw",
    "Job",
    "Knee",
    "Measured",
    "Runner",
    "bracket",
    "clearly_fails",
    "draw",
    "find_knee",
    "seems_to_hold",
    "serially",
    "summed",
]

MOST_ROBOTS = 4096
"""Largest population looked at. A fleet that still holds here has no knee to find."""
EPOCHS = 5
"""Draws of the published criterion."""
_LOOKS = (3, 5, 10)
"""Numbers of draws after which a population may be decided early."""
_SURE = 0.99
_EXPECTED_LATE = 3
"""With so many robots expected to be late, none at all is seen in one of 20 runs."""
_BRACKET_SECONDS, _BRACKET_DRAWS = 20, 2
_GLANCE_SECONDS, _FAR_BELOW = 2, 0.1
"""A draw of 2 s misses the mean of a long one by a few points near the knee, not by ten."""
_FLOOR, _NEAR = 0.7, 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """When a population counts as carried."""

    target: float = 0.98
    """Attainment the bound must reach."""
    num_draws: int = 20
    """Draws of a population that is in doubt."""
    duration: Nanos = 60 * SECOND
    """Traffic reported on per draw."""
    warm_up: Nanos = 5 * SECOND
    """Traffic before it."""
    first_seed: int = 0
    """Seed of the first draw; the others follow."""

    def __post_init__(self) -> None:
        if not 0 < self.target < 1:
            raise ConfigError(f"target must lie between 0 and 1, got {self.target}")
        if self.num_draws < 2:  # noqa: PLR2004 - one draw has no spread
            raise ConfigError(f"a bound needs at least 2 draws, got {self.num_draws}")
        if self.duration <= 0 or self.warm_up < 0:
            raise ConfigError("duration must be positive and warm_up at least 0")


class Job(NamedTuple):
    """One simulation to run."""

    population: int
    seed: int
    duration: Nanos
    warm_up: Nanos


class Draw(NamedTuple):
    """What one simulation found."""

    attainment: float
    """Attainment of the model that was served worst: a fleet is not carried by its other models."""
    worst_robot: float
    """Attainment of the robot that was served worst."""
    by_model: dict[str, float]


Runner: TypeAlias = Callable[[Sequence[Job]], Iterable[Draw]]
"""Runs jobs, here or in other processes, and gives their draws in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the draws of one population say."""

    population: int
    draws: tuple[Draw, ...]

    @property
    def attainments(self) -> list[float]:
        """One figure per draw."""
        return [draw.attainment for draw in self.draws]

    @property
    def mean(self) -> float:
        """Mean attainment."""
        return fmean(self.attainments)

    @property
    def mean_of_epochs(self) -> float:
        """Mean attainment over the first five draws."""
        return fmean(self.attainments[:EPOCHS])

    @property
    def worst_robot(self) -> float:
        """Mean attainment of each draw's worst robot."""
        return fmean(draw.worst_robot for draw in self.draws)

    @property
    def bound(self) -> float:
        """Attainment the mean exceeds with 95 % confidence."""
        return lower_bound(self.attainments)

    @property
    def interval(self) -> Interval:
        """Two-sided 95 % interval of the mean."""
        return t_interval(self.attainments)

    def is_early(self, criterion: Criterion) -> bool:
        """Whether it was decided before all draws were made, because they left no doubt."""
        return len(self.draws) < criterion.num_draws and self.is_sure(criterion.target)

    def is_sure(self, target: float) -> bool:
        """Whether these draws leave no doubt on which side of ``target`` the bound lies.

        Robots whose phases collide are late in every period of a draw, so a draw is a sample of as
        many as it has robots, however many requests they send; where several models share it, one
        of its model's robots. Above the target a bound counts only when so many were drawn that,
        were the attainment just the target, three of them would be expected to be late.
        """
        attainments = self.attainments
        low = lower_bound(attainments, _SURE)
        if low >= target:
            num_models = max(1, *(len(draw.by_model) for draw in self.draws))
            robots = self.population * len(self.draws) / num_models
            return robots * (1 - target) >= _EXPECTED_LATE
        return 2 * fmean(attainments) - low < target


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Capacity of a fleet."""

    target: float
    measured: tuple[Measured, ...]
    """By rising population."""

    @property
    def robots(self) -> int:
        """Largest population up to which all hold by their bound; 0 when none does."""
        return self._largest(lambda it: it.bound >= self.target)

    @property
    def robots_by_mean(self) -> int:
        """Largest population up to which the mean over five epochs reaches the target."""
        return self._largest(lambda it: it.mean_of_epochs >= self.target)

    def at(self, population: int) -> Measured | None:
        """What was measured of a population."""
        return next((it for it in self.measured if it.population == population), None)

    def _largest(self, holds: Callable[[Measured], bool]) -> int:
        largest = 0
        for it in self.measured:
            if not holds(it):
                break
            largest = it.population
        return largest


def find_knee(
    run: Runner,
    criterion: Criterion,
    *,
    start: int = 16,
    near: int | None = None,
    around: Sequence[float] = (),
    progress: Callable[[Measured], None] = lambda _: None,
) -> Knee:
    """Find how many robots are carried.

    Args:
        run: Simulates populations, see :func:`serially`.
        criterion: When a population counts as carried.
        start: Where to begin to look.
        near: Where the knee seems to be, if :func:`bracket` has said so already.
        around: Further populations to measure, as multiples of the knee: for a picture.
        progress: Told each population when it is decided.
    """
    search = _Search(run, criterion, progress)
    search.climb(max(bracket(run, criterion, start=start) if near is None else near, 1))
    search.descend()
    search.look_around(search.knee().robots, around)
    return search.knee()


def bracket(run: Runner, criterion: Criterion, *, start: int = 16, held: int = 0) -> int:
    """Largest population that seems to hold, 0 for none; by bisection with short draws.

    Args:
        run: Simulates populations.
        criterion: When a population counts as carried.
        start: Where to begin to look.
        held: A population that is known to seem to hold: the answer is sought close above it.
    """

    def seems(population: int) -> bool:
        return seems_to_hold(run, criterion, population)

    low, high = _close_above(held, seems) if held else _around(max(start, 1), seems)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if seems(middle) else (low, middle)
    return low


def _close_above(held: int, seems: Callable[[int], bool]) -> tuple[int, int]:
    """A population that seems to hold and one that does not, by growing steps from ``held``."""
    low, step = held, 1
    while low + step < MOST_ROBOTS and seems(low + step):
        low, step = low + step, 2 * step
    return low, low + step


def _around(start: int, seems: Callable[[int], bool]) -> tuple[int, int]:
    """A population that seems to hold, 0 if none does, and one that does not."""
    high = start
    while high < MOST_ROBOTS and seems(high):
        high *= 2
    if high > start:
        return high // 2, high
    low = high // 2  # the start was too high already: come down from it
    while low and not seems(low):
        low, high = low // 2, low
    return low, high


def seems_to_hold(run: Runner, criterion: Criterion, population: int) -> bool:
    """Whether the mean over a few short draws reaches the target."""
    return _mean_of_few(run, criterion, population, _BRACKET_SECONDS) >= criterion.target


def clearly_fails(run: Runner, criterion: Criterion, population: int) -> bool:
    """Whether even a glance shows a population to be far below the target."""
    try:
        mean = _mean_of_few(run, criterion, population, _GLANCE_SECONDS)
    except ConfigError:  # nobody asked in so short a time
        return False
    return mean < criterion.target - _FAR_BELOW


def _mean_of_few(run: Runner, criterion: Criterion, population: int, most_seconds: int) -> float:
    duration = min(most_seconds * SECOND, criterion.duration)
    warm_up = min(duration, criterion.warm_up)
    draws = run(
        [
            Job(population, criterion.first_seed + number, duration, warm_up)
            for number in range(_BRACKET_DRAWS)
        ]
    )
    return fmean(drawn.attainment for drawn in draws)


def serially(fleet: Fleet) -> Runner:
    """Simulate sizes of ``fleet`` one after the other in this process."""
    return lambda jobs: [draw(fleet, job) for job in jobs]


def draw(fleet: Fleet, job: Job) -> Draw:
    """Simulate ``fleet`` in the size and with the seed of ``job``."""
    sized = fleet.resized(job.population)
    run = simulate(sized, duration=job.duration, warm_up=job.warm_up, seed=job.seed)
    return summed(run)


def summed(run: Run) -> Draw:
    """Attainment of a run: of its worst model, of each model, of its worst robot.

    Raises:
        ConfigError: No robot sent anything in the time given.
    """
    if not run.records:
        raise ConfigError("nothing was sent in the time simulated; simulate longer")
    issued = Counter(record.robot for record in run.records)
    met = Counter(record.robot for record in run.records if record.is_met)
    of_model = Counter(record.model for record in run.records)
    met_of_model = Counter(record.model for record in run.records if record.is_met)
    by_model = {model: met_of_model[model] / count for model, count in sorted(of_model.items())}
    worst_robot = min(met[robot] / count for robot, count in issued.items())
    return Draw(min(by_model.values()), worst_robot, by_model)


class _Search:
    """Populations measured so far."""

    def __init__(
        self, run: Runner, criterion: Criterion, progress: Callable[[Measured], None]
    ) -> None:
        self._run = run
        self._criterion = criterion
        self._progress = progress
        self._measured: dict[int, Measured] = {}

    def climb(self, near: int) -> None:
        """Measure upwards from well below ``near`` until a population fails, and one more."""
        coarse = range(max(1, round(_FLOOR * near)), round(_NEAR * near), max(1, near // 10))
        held = coarse[0] - 1 if coarse else near - 1
        for population in coarse:
            if self._fails(population):
                break
            held = population
        if coarse and held < coarse[0] and coarse[0] > 1:
            self.climb(coarse[0])
            return
        population = held + 1
        while population < MOST_ROBOTS and not self._fails(population):
            population += 1
        self._measure(population + 1, min(EPOCHS, self._criterion.num_draws))

    def descend(self) -> None:
        """Measure further down while already the lowest population does not hold by its bound."""
        lowest = min(self._measured)
        if lowest == 1 or self._holds(lowest):
            return
        held = 0
        for population in range(max(1, round(_FLOOR * lowest)), lowest, max(1, lowest // 10)):
            if not self._holds(population):
                break
            held = population
        if not held:
            self.descend()
            return
        while held + 1 < lowest and self._holds(held + 1):
            held += 1

    def look_around(self, knee: int, multiples: Iterable[float]) -> None:
        """Measure a few draws of populations further off."""
        for multiple in multiples:
            population = min(max(round(multiple * knee), 1), MOST_ROBOTS)
            self._measure(population, min(EPOCHS, self._criterion.num_draws))

    def _fails(self, population: int) -> bool:
        """Whether ``population`` fails by both criteria."""
        it = self._measure(population, self._criterion.num_draws)
        target = self._criterion.target
        return it.bound < target and it.mean_of_epochs < target

    def _holds(self, population: int) -> bool:
        """Whether ``population`` holds by its bound."""
        it = self._measure(population, self._criterion.num_draws)
        return it.bound >= self._criterion.target

    def _measure(self, population: int, num_draws: int) -> Measured:
        """Draw ``population`` until it is decided."""
        known = self._measured.get(population)
        if known is not None:
            return known
        draws: list[Draw] = []
        for look in (*(look for look in _LOOKS if look < num_draws), num_draws):
            jobs = [
                Job(
                    population,
                    self._criterion.first_seed + number,
                    self._criterion.duration,
                    self._criterion.warm_up,
                )
                for number in range(len(draws), look)
            ]
            draws += self._run(jobs)
            if Measured(population=population, draws=tuple(draws)).is_sure(self._criterion.target):
                break
        measured = Measured(population=population, draws=tuple(draws))
        self._measured[population] = measured
        self._progress(measured)
        return measured

    def knee(self) -> Knee:
        """What is known so far."""
        ordered = tuple(self._measured[population] for population in sorted(self._measured))
        return Knee(target=self._criterion.target, measured=ordered)
