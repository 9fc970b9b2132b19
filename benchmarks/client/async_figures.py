"""Figures of the experiment on asynchronous inference: bounds, intervals, sums over episodes.

Nothing here knows a simulator or a clock. An *episode* is the plain record that
:mod:`benchmarks.client.async_robot` makes; two arms are compared over the starts that both were
run from, and their times over those that both solved.

Start reading at :func:`compared`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Episode",
    "bound_of",
    "compared",
    "interval_of",
    "paired",
    "quantiles",
    "summed_up",
]

Episode: TypeAlias = Mapping[str, Any]
Interval: TypeAlias = tuple[float, float]
Statistic: TypeAlias = Callable[[NDArray[np.intp]], NDArray[np.float64]]

RESAMPLES = 2000
LEVEL = 95.0


def bound_of(x: float) -> float:
    """How many times as fast as sequential inference a robot can be that never waits in vain.

    With ``n`` actions a chunk, a control period ``dt`` and an answer after ``L``, sequential
    inference takes ``n dt + L`` a chunk and asynchronous at best the longer of both; ``x`` is
    ``n dt / L``.
    """
    if x <= 0:
        raise ValueError(f"x must be positive, got {x}")
    return (1.0 + x) / max(1.0, x)


def quantiles(values: Sequence[float]) -> dict[str, float] | None:
    """Median and upper quantiles; None of nothing."""
    if not values:
        return None
    p50, p90, p99 = (float(each) for each in np.percentile(values, (50, 90, 99)))
    return {"p50": round(p50, 4), "p90": round(p90, 4), "p99": round(p99, 4), "count": len(values)}


def interval_of(statistic: Statistic, num_pairs: int, *, seed: int = 0) -> Interval | None:
    """The middle 95 % of a statistic over starts drawn again with replacement.

    Args:
        statistic: Of draws of starts, given as their places of shape ``(draws, starts)``; one value
            a draw, not finite where there is none.
        num_pairs: Starts there are.
        seed: Of the draw.

    Returns:
        Both ends; None where nothing can be said.
    """
    if not num_pairs:
        return None
    drawn = np.random.default_rng(seed).integers(num_pairs, size=(RESAMPLES, num_pairs))
    values = statistic(drawn)
    known = values[np.isfinite(values)]
    if not known.size:
        return None
    tail = (100.0 - LEVEL) / 2.0
    low, high = np.percentile(known, (tail, 100.0 - tail))
    return round(float(low), 4), round(float(high), 4)


def paired(one: Sequence[Episode], other: Sequence[Episode]) -> list[tuple[Episode, Episode]]:
    """Episodes of two arms from the same start, in the order of the first."""
    by_key = {_key(episode): episode for episode in other}
    return [(each, by_key[_key(each)]) for each in one if _key(each) in by_key]


def compared(base: Sequence[Episode], arm: Sequence[Episode]) -> dict[str, Any]:
    """An arm beside a base.

    Returns:
        ``speedup``: completion time of the base over that of the arm, summed over the starts both
        solved, from the first observation on; ``speedup_moving``: the same from the first action
        on; ``pace``: ticks per action of the base over those of the arm, from the first action on,
        which is what waiting costs whatever the actions achieve; ``actions``: actions of the base
        over those of the arm; ``success_difference``: arm less base. Each but ``pairs`` and
        ``both_solved`` is a value with its interval.
    """
    pairs = paired(base, arm)
    both = [(a, b) for a, b in pairs if a["is_solved"] and b["is_solved"]]
    return {
        "pairs": len(pairs),
        "both_solved": len(both),
        "speedup": _ratio(both, lambda episode: episode["ticks"]),
        "speedup_moving": _ratio(both, _moving_ticks),
        "actions": _ratio(both, lambda episode: episode["executed"]),
        "pace": _pace_ratio(pairs),
        "inferences": _inverse(_ratio(both, lambda episode: episode["inferences"])),
        "success_difference": _difference(pairs),
    }


def summed_up(episodes: Sequence[Episode], *, period_s: float) -> dict[str, Any]:
    """One arm at one c, over all its starts."""
    solved = [episode for episode in episodes if episode["is_solved"]]
    moving_minutes = sum(map(_moving_ticks, episodes)) * period_s / 60.0
    executed = sum(episode["executed"] for episode in episodes)
    inferences = sum(episode["inferences"] for episode in episodes)
    return {
        "episodes": len(episodes),
        "solved": len(solved),
        "completion_s": _completion(solved, period_s),
        "actions_of_solved": quantiles([episode["executed"] for episode in solved]),
        "inferences_per_solved": _mean_of(solved, "inferences"),
        "inferences_per_minute": _per(inferences, moving_minutes),
        "executed_per_inference": _per(executed, inferences),
        "starved_per_minute": _per(sum(e["starved"] for e in episodes), moving_minutes),
        "splice_step": quantiles([v for e in episodes for v in e["splice_steps"]]),
        "splice_shift": quantiles([v for e in episodes for v in e["splice_shifts"]]),
        "jerk_m_s3": quantiles([episode["jerk_m_s3"] for episode in episodes]),
        "action_age_ticks": quantiles([v for e in episodes for v in e["ages"]]),
    }


def _completion(solved: Sequence[Episode], period_s: float) -> dict[str, Any] | None:
    if not solved:
        return None
    times = np.array([episode["ticks"] * period_s for episode in solved])
    return {
        **(quantiles(times.tolist()) or {}),
        "mean": round(float(times.mean()), 3),
        "mean_interval": interval_of(lambda drawn: times[drawn].mean(-1), len(times)),
    }


def _moving_ticks(episode: Episode) -> int:
    """Ticks from the first action on."""
    first = episode["first_action_tick"]
    return 0 if first is None else episode["ticks"] - first


def _ratio(
    pairs: Sequence[tuple[Episode, Episode]], measure: Callable[[Episode], float]
) -> dict[str, Any] | None:
    """Sum of the first over sum of the second, with its interval."""
    if not pairs:
        return None
    ones = np.array([measure(one) for one, _ in pairs], np.float64)
    others = np.array([measure(other) for _, other in pairs], np.float64)

    if not others.sum():
        return None
    return _with_interval(lambda drawn: ones[drawn].sum(-1) / others[drawn].sum(-1), len(pairs))


def _pace_ratio(pairs: Sequence[tuple[Episode, Episode]]) -> dict[str, Any] | None:
    moved = [(a, b) for a, b in pairs if a["executed"] and b["executed"]]
    if not moved:
        return None
    sums = np.array(
        [[_moving_ticks(a), a["executed"], _moving_ticks(b), b["executed"]] for a, b in moved],
        np.float64,
    )

    def ratio(drawn: NDArray[np.intp]) -> NDArray[np.float64]:
        ticks, actions, other_ticks, other_actions = np.moveaxis(sums[drawn].sum(-2), -1, 0)
        return ticks / actions / (other_ticks / other_actions)

    return _with_interval(ratio, len(moved))


def _difference(pairs: Sequence[tuple[Episode, Episode]]) -> dict[str, Any] | None:
    if not pairs:
        return None
    differences = np.array([int(b["is_solved"]) - int(a["is_solved"]) for a, b in pairs])
    return _with_interval(lambda drawn: differences[drawn].mean(-1), len(pairs))


def _with_interval(statistic: Statistic, num_pairs: int) -> dict[str, Any]:
    value = statistic(np.arange(num_pairs)[np.newaxis])[0]
    return {"value": round(float(value), 4), "interval_95": interval_of(statistic, num_pairs)}


def _inverse(ratio: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The arm's share of the base, from the base's over the arm's."""
    if ratio is None or not ratio["value"]:
        return None
    interval = ratio["interval_95"]
    return {
        "value": round(1.0 / ratio["value"], 4),
        "interval_95": interval and [round(1.0 / interval[1], 4), round(1.0 / interval[0], 4)],
    }


def _key(episode: Episode) -> tuple[str, int]:
    return episode["task"], episode["start"]


def _mean_of(episodes: Sequence[Episode], name: str) -> float | None:
    return round(sum(e[name] for e in episodes) / len(episodes), 3) if episodes else None


def _per(count: float, of: float) -> float | None:
    return round(count / of, 4) if of else None
