"""Gathers what ``takt hardware`` shows: stage times, errors, and what to think of them.

Everything here is a plain value; :mod:`takt.hardware.page` writes it as Markdown, the command as
tables, :mod:`takt.hardware.plot` as a picture.

Start reading at :func:`comparisons`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from takt.core.profile import Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.hardware.architectures import Layout, architecture_named
from takt.hardware.calibration import CALIBRATION, DEFAULT_STACK, Calibration
from takt.hardware.devices import device_named
from takt.hardware.fitting import error_of, halves
from takt.hardware.profiles import model_for, profile_for
from takt.hardware.published import PUBLISHED, Published
from takt.hardware.roofline import predicted_ms
from takt.units import to_ms

__all__ = [
    "CAVEAT",
    "SHOWN_ARCHITECTURES",
    "SHOWN_DEVICES",
    "SHOWN_SIZES",
    "Accuracy",
    "Comparison",
    "StageTimes",
    "accuracy",
    "by_architecture",
    "by_stack",
    "comparisons",
    "stage_times",
    "without_eager",
    "worst",
]

CAVEAT = "modelled, not measured"
"""Stands with every time that comes from here."""
SHOWN_ARCHITECTURES = ("pi0", "pi05", "smolvla", "groot-n1.7", "xr0")
"""Architectures shown when none is asked for."""
SHOWN_DEVICES = ("rtx-pro-6000", "h100", "h200", "rtx-4090", "a100")
"""Devices shown when none is asked for."""
SHOWN_SIZES = (1, 2, 4, 8)
"""Batch sizes shown."""

_CLOSE = 0.25


class StageTimes(NamedTuple):
    """Times of both stages of one architecture and layout on one device."""

    device: str
    """Name of the device."""
    architecture: str
    """Name of the architecture."""
    layout: Layout
    """What the rows hold."""
    prefix_ms: tuple[float, ...]
    """Time of a prefix launch for each of :data:`SHOWN_SIZES`."""
    denoise_ms: tuple[float, ...]
    """Time of a denoise launch for each of :data:`SHOWN_SIZES`."""


class Comparison(NamedTuple):
    """A published latency and what the model says."""

    published: Published
    """The figure."""
    predicted_ms: float
    """What the model says."""
    error: float
    """Predicted over published, less one."""
    fitted: bool
    """Whether the figure belongs to the half the constants were fitted on."""

    @property
    def badness(self) -> float:
        """Size of the error: half as long and twice as long are equally bad."""
        return abs(math.log(1 + self.error))


class Accuracy(NamedTuple):
    """How well a set of figures is predicted."""

    figures: int
    """Number of figures."""
    median: float
    """Median of the absolute errors."""
    close: float
    """Share of the figures within 25 %."""
    worst_decile: float
    """Nine in ten figures are off by less than this."""


def stage_times(
    devices: Sequence[str] = SHOWN_DEVICES,
    architectures: Sequence[str] = SHOWN_ARCHITECTURES,
    stack: str = DEFAULT_STACK,
) -> list[StageTimes]:
    """Modelled stage times, layout by layout, from the cheapest to the dearest.

    Raises:
        ConfigError: A name is unknown, or a device cannot run the stack.
    """
    return [
        row
        for device in devices
        for architecture in architectures
        for row in _stage_times(device, architecture, stack)
    ]


def _stage_times(device: str, architecture: str, stack: str) -> Iterator[StageTimes]:
    units = device_named(device).units
    model = model_for(architecture, prefix_sizes=SHOWN_SIZES, denoise_sizes=SHOWN_SIZES)
    profile = profile_for(device, [model], stack=stack, shares=[units])
    for number, layout in enumerate(architecture_named(architecture).layouts):
        prefix, denoise = (
            tuple(
                to_ms(profile.solo(Work(architecture, stage, number, size, units)))
                for size in SHOWN_SIZES
            )
            for stage in Stage
        )
        yield StageTimes(device, architecture, layout, prefix, denoise)


def comparisons(
    devices: Sequence[str] = (),
    architectures: Sequence[str] = (),
    calibration: Calibration = CALIBRATION,
) -> list[Comparison]:
    """Published latencies with the model's, in their sorted order.

    Args:
        devices: Only figures of these devices; all of them when empty.
        architectures: Only figures of these architectures; all of them when empty.
        calibration: The constants in use.

    Raises:
        ConfigError: A name is unknown.
    """
    for device in devices:
        device_named(device)
    for architecture in architectures:
        architecture_named(architecture)
    fitted, _ = halves()
    return [
        Comparison(
            point, predicted_ms(point, calibration), error_of(point, calibration), point in fitted
        )
        for point in PUBLISHED
        if (not devices or point.device in devices)
        and (not architectures or point.architecture in architectures)
    ]


def accuracy(errors: Sequence[float]) -> Accuracy:
    """How well figures with these errors are predicted.

    Raises:
        ConfigError: There is no figure.
    """
    if not errors:
        raise ConfigError("no published latency to compare with")
    sizes = sorted(abs(error) for error in errors)
    return Accuracy(
        figures=len(sizes),
        median=statistics.median(sizes),
        close=sum(size <= _CLOSE for size in sizes) / len(sizes),
        worst_decile=sizes[math.ceil(0.9 * len(sizes)) - 1],
    )


def without_eager(compared: Sequence[Comparison]) -> list[Comparison]:
    """The figures in which no stage is eager: their time depends on the GPU, not on its host."""
    return [one for one in compared if "eager" not in one.published.stack]


def worst(compared: Sequence[Comparison], count: int = 3) -> list[Comparison]:
    """The figures that are predicted worst, the worst first."""
    return sorted(compared, key=lambda one: -one.badness)[:count]


def by_stack(compared: Sequence[Comparison]) -> dict[str, Accuracy]:
    """Accuracy for each stack; a figure that mixes two is counted with the slower one."""
    return _by(compared, lambda one: one.published.prefix or one.published.denoise)


def by_architecture(compared: Sequence[Comparison]) -> dict[str, Accuracy]:
    """Accuracy for each architecture."""
    return _by(compared, lambda one: one.published.architecture)


def _by(compared: Sequence[Comparison], key: Callable[[Comparison], str]) -> dict[str, Accuracy]:
    errors: dict[str, list[float]] = {}
    for one in compared:
        errors.setdefault(key(one), []).append(one.error)
    return {name: accuracy(errors[name]) for name in sorted(errors)}
