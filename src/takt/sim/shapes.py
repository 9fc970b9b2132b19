"""Which formation, in which shape, carries the most robots.

A *shape* is a formation with its options and batch limits. Shapes race on common random numbers:
each one is tried, with short draws, with one robot more than the best one so far seems to carry,
and only those that hold there are looked at closely. What fails there by far is not even tried
long.

Start reading at :func:`best_shape`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from takt.errors import ConfigError
from takt.sim.fleet import Fleet
from takt.sim.knee import (
    Criterion,
    Knee,
    Measured,
    Runner,
    bracket,
    clearly_fails,
    find_knee,
    seems_to_hold,
)

__all__ = [
    "GATHERED",
    "LARGEST",
    "Carried",
    "Shape",
    "best_shape",
    "limits_of",
    "shapes_of",
    "sound_shapes",
]

GATHERED = (4, 8)
"""Rows a denoise launch is held back for where gathering is on: eight where there is slack, four
where there is little. Fewer gather less, more gain nothing."""

_PREFIX_LIMITS = (1, 2, 3, 4)
_DENOISE_LIMITS = (16, 8, 4)
_WAIT = 1.5
"""Time a request needs when everything is at its largest, over what its formation expects from
the start of its prefix: it also waits for the launch that began before it came. With 1.25, pi0 on
flowing lanes carried 22 robots, and one robot's worth when 33 asked."""
_MOST_FINALISTS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One way to drive a device."""

    formation: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the formation."""
    prefix_limit: int
    """Largest prefix batch."""
    denoise_limit: int
    """Largest denoise batch."""

    @property
    def prefix_sizes(self) -> tuple[int, ...]:
        """Captured sizes of the prefix stage: all up to the limit."""
        return tuple(range(1, self.prefix_limit + 1))

    @property
    def denoise_sizes(self) -> tuple[int, ...]:
        """Captured sizes of the denoise stage: powers of two up to the limit."""
        return tuple(size for size in (1, 2, 4, 8, 16) if size <= self.denoise_limit)

    def __str__(self) -> str:
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{self.formation}{f' ({options})' if options else ''}"


LARGEST = Shape(
    formation="monolithic", prefix_limit=_PREFIX_LIMITS[-1], denoise_limit=_DENOISE_LIMITS[0]
)
"""The largest batches of any shape: a profile with their sizes serves every other one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What one shape carries."""

    shape: Shape
    knee: Knee


def shapes_of(formation: str, gathering: bool | None = None) -> list[Shape]:
    """The shapes to choose among, those of ``lockstep`` first.

    Args:
        formation: A formation, or ``auto`` for every one that drives a single device.
        gathering: Whether denoise launches may be held back; None tries both.

    Raises:
        ConfigError: ``gathering`` is on and the formation has none.
    """
    gathered = {None: (0, *GATHERED), True: GATHERED, False: (0,)}[gathering]
    options: dict[str, list[dict[str, Any]]] = {
        "lockstep": [{"gathering": rows} if rows else {} for rows in gathered],
        "flowing": [{"gathering": rows} if rows else {} for rows in gathered],
        "monolithic": [{}, {"replicas": 2}],
        "step_admission": [{}],
        "disaggregated": [{"prefix_devices": 3}],
    }
    if formation not in ("auto", *options):
        raise ConfigError(f"no formation {formation!r}; known: auto, {', '.join(options)}")
    if gathering and formation not in ("auto", "lockstep", "flowing"):
        raise ConfigError(f"formation {formation!r} has no gathering; lockstep and flowing have")
    single = ("lockstep", "flowing", "monolithic", "step_admission")
    return [
        shape
        for name in (single if formation == "auto" else (formation,))
        for chosen in options[name]
        for shape in limits_of(name, chosen)
    ]


def limits_of(
    formation: str, options: Mapping[str, Any], prefix_limits: Sequence[int] = _PREFIX_LIMITS
) -> list[Shape]:
    """A formation with every pair of batch limits."""
    return [
        Shape(formation=formation, options=options, prefix_limit=prefix, denoise_limit=denoise)
        for prefix in prefix_limits
        for denoise in _DENOISE_LIMITS
    ]


def sound_shapes(shapes: Sequence[Shape], fleet_of: Callable[[Shape], Fleet]) -> list[Shape]:
    """The shapes whose batches are small enough for the promise, each with one denoise limit.

    Batches are at their largest when there is too much to do. If a request could not be on time
    then, every request would be hopeless, none would go before another, and all would be late. A
    formation that has no sound shape keeps all its prefix limits, with small denoise batches.
    """
    kept: list[Shape] = []
    for kind in dict.fromkeys(map(str, shapes)):
        same = [shape for shape in shapes if str(shape) == kind]
        sound: dict[int, Shape] = {}
        for shape in same:
            if shape.prefix_limit not in sound and _is_sound(fleet_of(shape)):
                sound[shape.prefix_limit] = shape
        kept += sound.values() or {shape.prefix_limit: shape for shape in same}.values()
    return kept


def _is_sound(fleet: Fleet) -> bool:
    allowance = fleet.network.allowance()
    return all(
        _WAIT * setup.expected(model) <= model.slo - allowance
        for setup in fleet.devices.values()
        for model in setup.models
    )


def best_shape(
    shapes: Sequence[Shape],
    runner: Callable[[Shape], Runner],
    criterion: Criterion,
    progress: Callable[[Shape, Measured | None], None] = lambda _, __: None,
) -> Carried:
    """The shape that carries the most robots; of equals the first.

    The best shape of the first formation is always measured to the end, so that the answer is
    never below it: put the one to beat first.

    Args:
        shapes: At least one.
        runner: Simulates a shape.
        criterion: When a population counts as carried.
        progress: Told each shape that is tried, and each population of a finalist.
    """
    finals = [
        Carried(
            shape=shape,
            knee=find_knee(
                runner(shape),
                criterion,
                near=near,
                progress=lambda measured, shape=shape: progress(shape, measured),
            ),
        )
        for shape, near in _finalists(shapes, runner, criterion, progress)
    ]
    return max(finals, key=lambda carried: carried.knee.robots)


def _finalists(
    shapes: Sequence[Shape],
    runner: Callable[[Shape], Runner],
    criterion: Criterion,
    progress: Callable[[Shape, Measured | None], None],
) -> list[tuple[Shape, int]]:
    """The shapes that seem best, and where their knees seem to be."""
    seen: list[tuple[Shape, int]] = []
    for shape in shapes:
        progress(shape, None)
        run = runner(shape)
        best = max((near for _, near in seen), default=0)
        if not best:
            seen.append((shape, bracket(run, criterion)))
        elif _seems_to_beat(best, run, criterion):
            seen.append((shape, bracket(run, criterion, held=best + 1)))
    own = [it for it in seen if it[0].formation == shapes[0].formation]
    ahead = _first(seen, _MOST_FINALISTS)
    return [*ahead, *(it for it in _first(own, 1) if it not in ahead)]


def _seems_to_beat(best: int, run: Runner, criterion: Criterion) -> bool:
    """Whether a shape seems to carry more than ``best`` robots; of equals the first one stays."""
    more = best + 1
    return not clearly_fails(run, criterion, more) and seems_to_hold(run, criterion, more)


def _first(seen: Iterable[tuple[Shape, int]], count: int) -> list[tuple[Shape, int]]:
    return sorted(seen, key=lambda it: -it[1])[:count]
