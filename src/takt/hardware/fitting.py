"""Finds the constants on one half of the published figures and judges them on the other.

The halves are fixed by a rule nobody can bend: the figures are sorted by source, architecture,
device, stacks, layout, size and value, and every second one is fitted. Neighbours in that order
often come from one source, so the reported half is not wholly new to the fit;
:func:`unseen_errors` is the harder test, which leaves a whole source out at a time.

The fit minimises the sum of a rounded absolute logarithm of predicted over published, so a figure
that is off by a factor of three pulls no harder than one that is off by half. It moves one constant
at a time with shrinking steps, from two starts: no random numbers, the same result everywhere.

Start reading at :func:`fit`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import TypeAlias

from takt.hardware.calibration import CALIBRATION, STACKS, Calibration
from takt.hardware.published import PUBLISHED, Published
from takt.hardware.roofline import Load, loads_of, predicted_ms, seconds_of

__all__ = [
    "STARTS",
    "constants_of",
    "error_of",
    "fit",
    "halves",
    "ranges",
    "spread",
    "unseen_errors",
    "without_each_source",
]

_ROUND = Calibration(
    feed_tflops=4.0,
    bandwidth=0.8,
    prefix_layer=2.0,
    launch_us={"eager": 500.0, "compiled": 100.0, "graph": 100.0, "tuned": 30.0, "fp8": 40.0},
)
STARTS = tuple(replace(_ROUND, feed_tflops=feed) for feed in (2.0, 8.0))
"""Where the fit begins: round numbers of the right order. The rate at which SMs are fed is the one
constant with another local best far away, so it has two starts."""

_MOST_BANDWIDTH = 0.95
_ROUNDING = 0.05
"""Errors well below this share of the value count little: no source repeats better."""
_FIRST_STEP, _LAST_STEP = 0.5, 0.001
_DIGITS = 3
_Case: TypeAlias = tuple[tuple[Load, ...], float]


def halves(
    points: Sequence[Published] = PUBLISHED,
) -> tuple[tuple[Published, ...], tuple[Published, ...]]:
    """The fitted and the reported half."""
    ordered = sorted(points)
    return tuple(ordered[0::2]), tuple(ordered[1::2])


def error_of(point: Published, calibration: Calibration = CALIBRATION) -> float:
    """Predicted over published, less one: 0.25 means a quarter too slow."""
    return predicted_ms(point, calibration) / point.milliseconds - 1


def constants_of(calibration: Calibration) -> dict[str, float]:
    """The constants by name; those per stack are named ``launch_us.<stack>``."""
    shared = {
        "feed_tflops": calibration.feed_tflops,
        "bandwidth": calibration.bandwidth,
        "prefix_layer": calibration.prefix_layer,
    }
    return shared | {f"launch_us.{name}": calibration.launch_us[name] for name in STACKS}


def fit(points: Sequence[Published], starts: Sequence[Calibration] = STARTS) -> Calibration:
    """The constants that describe ``points`` best, rounded to three digits.

    A constant that none of the points depends on keeps its value of the start.
    """
    cases = [(loads_of(point), point.milliseconds / 1e3) for point in points]
    found = [_descend(cases, constants_of(start)) for start in starts]
    _, best = min(found, key=lambda pair: pair[0])
    return _calibration({name: _rounded(value) for name, value in best.items()})


def _descend(cases: Sequence[_Case], best: dict[str, float]) -> tuple[float, dict[str, float]]:
    """The nearest local best of the constants and its loss."""
    loss = _loss(cases, _calibration(best))
    step = _FIRST_STEP
    while step > _LAST_STEP:
        before = loss
        for name in best:
            for factor in (1 + step, 1 / (1 + step)):
                trial = {**best, name: best[name] * factor}
                trial_loss = _loss(cases, _calibration(trial))
                if trial_loss < loss and trial["bandwidth"] <= _MOST_BANDWIDTH:
                    best, loss = trial, trial_loss
        if loss == before:
            step /= 2
    return loss, best


def _calibration(constants: Mapping[str, float]) -> Calibration:
    return Calibration(
        feed_tflops=constants["feed_tflops"],
        bandwidth=constants["bandwidth"],
        prefix_layer=constants["prefix_layer"],
        launch_us={name: constants[f"launch_us.{name}"] for name in STACKS},
    )


def _loss(cases: Sequence[_Case], calibration: Calibration) -> float:
    return sum(
        math.hypot(
            math.log(sum(seconds_of(load, calibration) for load in loads) / published), _ROUNDING
        )
        for loads, published in cases
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


@cache
def without_each_source() -> tuple[tuple[tuple[Published, ...], Calibration], ...]:
    """For each source, its figures and the fit to the fitted half without them."""
    fitted, _ = halves()
    return tuple(
        (
            tuple(figures),
            fit([point for point in fitted if point.source != source], [CALIBRATION]),
        )
        for source, figures in groupby(PUBLISHED, key=lambda point: point.source)
    )


def ranges() -> dict[str, tuple[float, float]]:
    """Lowest and highest value of each constant when any one source is left out."""
    fits = [constants_of(calibration) for _, calibration in without_each_source()]
    return {name: (min(f[name] for f in fits), max(f[name] for f in fits)) for name in fits[0]}


def unseen_errors() -> list[tuple[Published, float]]:
    """Every figure with its error under constants that saw nothing of its source."""
    return [
        (point, error_of(point, calibration))
        for figures, calibration in without_each_source()
        for point in figures
    ]


def spread(points: Sequence[Published] = PUBLISHED) -> list[tuple[Published, float]]:
    """Cases published more than once, with the highest figure over the lowest."""
    by_case: dict[tuple[object, ...], list[Published]] = {}
    for point in points:
        case = (point.architecture, point.device, point.prefix, point.denoise, point.layout)
        by_case.setdefault((*case, point.size), []).append(point)
    return [
        (several[0], max(p.milliseconds for p in several) / min(p.milliseconds for p in several))
        for several in by_case.values()
        if len(several) > 1
    ]
