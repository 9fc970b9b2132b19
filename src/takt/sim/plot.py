"""Draws SLO attainment over the number of robots, as PNG or SVG.

The picture always says that its figures are simulated; a measured curve needs another one. Equal
inputs give equal bytes with one version of matplotlib: no date, no random identifiers and none of
the user's style settings reach the file. matplotlib is imported when a plot is asked for, through
its object interface, so no window system and no global figure is touched.

Start reading at :func:`plot_attainment`.
"""

# matplotlib's own stubs leave its keyword arguments untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from takt.errors import ConfigError, UsageError
from takt.files import replacing
from takt.sim.knee import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SUFFIXES", "CurvePoint", "plot_attainment"]

SUFFIXES = (".png", ".svg")
"""File names a plot can be written to."""

_INK, _GREY, _ACCENT, _ALARM = "#1b1f24", "#6b7280", "#0b5cad", "#c2410c"
# Okabe and Ito's colours, which colour-blind readers can tell apart, less those used above.
_MODEL_COLOURS = ("#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#8c6d1f", "#7a5195")
_MODEL_MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">")
_MOST_TICKS = 12
_SUBTITLE_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Attainment at one population, over several seeds."""

    population: int
    """Number of robots."""
    mean: float
    """Mean SLO attainment, 0..1; of several models that of the one served worst."""
    low: float
    """Low end of the interval. It may lie below 0; the drawing stops there."""
    high: float
    """High end of the interval. It may lie above 1; the drawing stops there."""
    by_model: Mapping[str, float] = field(default_factory=dict[str, float])
    """Mean attainment per model, for those shown on their own."""

    def __post_init__(self) -> None:
        if self.population < 1:
            raise UsageError(f"population must be at least 1, got {self.population}")
        if not self.low <= self.mean <= self.high:
            got = f"{self.low}, {self.mean}, {self.high}"
            raise UsageError(f"low, mean, high must ascend, got {got}")
        for name, share in {"mean": self.mean, **self.by_model}.items():
            if not 0 <= share <= 1:
                raise UsageError(f"attainment of {name} must lie in [0, 1], got {share}")

    @classmethod
    def of(cls, measured: Measured) -> CurvePoint:
        """What the draws of one population say; each model on its own where there are several."""
        draws, interval = measured.draws, measured.interval
        models = sorted({name for draw in draws for name in draw.by_model})
        by_model = {
            name: fmean(draw.by_model[name] for draw in draws if name in draw.by_model)
            for name in models
        }
        return cls(
            population=measured.population,
            mean=interval.mean,
            low=interval.low,
            high=interval.high,
            by_model=by_model if len(by_model) > 1 else {},
        )


def plot_attainment(
    curve: Sequence[CurvePoint],
    path: Path,
    *,
    target: float = 0.98,
    knee: int | None = None,
    title: str = "SLO attainment over population",
    subtitle: str = "",
    interval: str = "95 % interval over seeds",
) -> None:
    """Write a plot of ``curve`` to ``path``; a file that is there is replaced.

    Args:
        curve: Points with ascending populations, at least one.
        path: Ends in ``.png`` or ``.svg``.
        target: Attainment that the fleet must reach, between 0 and 1.
        knee: Largest population that reaches the target, one of the curve's; None draws none.
        title: What is shown.
        subtitle: Its circumstances: fleet, formation, seeds. "Simulated" is written before it.
        interval: What the band around the mean is.

    Raises:
        ConfigError: The suffix is none of :data:`SUFFIXES`, matplotlib is missing, or the file
            cannot be written.
        UsageError: The curve is empty or not ascending, ``target`` is no share, or ``knee`` is
            not on the curve.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"{path.name}: a plot ends in {' or '.join(SUFFIXES)}")
    _check(curve, target=target, knee=knee)
    try:
        import matplotlib as mpl
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "plots need matplotlib; install it with: pip install 'takt-serve[plot]'"
        ) from error
    with style.context("default"), mpl.rc_context({"svg.hashsalt": "takt"}):
        figure = Figure(figsize=(7.6, 4.6), dpi=200, layout="constrained")
        axes = figure.add_subplot()
        _draw_mean(axes, curve, interval=interval)
        _draw_target(axes, target)
        _draw_models(axes, curve)
        if knee is not None:
            _draw_knee(axes, curve, knee)
        _dress(axes, curve, target=target)
        _head(axes, title=title, subtitle=subtitle)
        _write(figure, path)


def _check(curve: Sequence[CurvePoint], *, target: float, knee: int | None) -> None:
    populations = [point.population for point in curve]
    if not populations:
        raise UsageError("a curve needs at least one point")
    if populations != sorted(set(populations)):
        raise UsageError(f"populations must ascend, got {populations}")
    if not 0 < target < 1:
        raise UsageError(f"target must lie between 0 and 1, got {target}")
    if knee is not None and knee not in populations:
        raise UsageError(f"knee must be one of the populations {populations}, got {knee}")


def _draw_models(axes: Axes, curve: Sequence[CurvePoint]) -> None:
    names = sorted({name for point in curve for name in point.by_model})
    for index, name in enumerate(names):
        known = [point for point in curve if name in point.by_model]
        axes.plot(
            [point.population for point in known],
            [point.by_model[name] for point in known],
            color=_MODEL_COLOURS[index % len(_MODEL_COLOURS)],
            marker=_MODEL_MARKERS[index % len(_MODEL_MARKERS)],
            markersize=3.2,
            linewidth=1.0,
            alpha=0.9,
            label=name,
        )


def _draw_mean(axes: Axes, curve: Sequence[CurvePoint], *, interval: str) -> None:
    populations = [point.population for point in curve]
    low = [max(0.0, point.low) for point in curve]
    high = [min(1.0, point.high) for point in curve]
    axes.plot(
        populations,
        [point.mean for point in curve],
        color=_ACCENT,
        marker="o",
        markersize=4.5,
        linewidth=2.0,
        label="mean over seeds",
        zorder=3,
    )
    axes.fill_between(
        populations, low, high, color=_ACCENT, alpha=0.18, linewidth=0, label=interval, zorder=2.5
    )


def _draw_target(axes: Axes, target: float) -> None:
    axes.axhline(
        target, color=_ALARM, linewidth=1.2, linestyle=(0, (5, 3)), label=f"target {target:g}"
    )


def _draw_knee(axes: Axes, curve: Sequence[CurvePoint], knee: int) -> None:
    mean = next(point.mean for point in curve if point.population == knee)
    is_right = 2 * knee > curve[0].population + curve[-1].population
    axes.axvline(knee, color=_INK, linewidth=0.9, linestyle=(0, (1, 2)))
    axes.plot(
        [knee], [mean], color="white", markeredgecolor=_INK, marker="o", markersize=8, zorder=4
    )
    axes.annotate(
        f"knee: {knee} robot{'' if knee == 1 else 's'}",
        xy=(knee, 0),
        xycoords=("data", "axes fraction"),
        xytext=(-6 if is_right else 6, 8),
        textcoords="offset points",
        horizontalalignment="right" if is_right else "left",
        color=_INK,
        fontsize=9.5,
        fontweight="bold",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5},
    )


def _dress(axes: Axes, curve: Sequence[CurvePoint], *, target: float) -> None:
    shown = [target, *(share for p in curve for share in (max(0.0, p.low), *p.by_model.values()))]
    room = max(0.02, 0.08 * (1 - min(shown)))
    axes.set_ylim(max(-0.02, min(shown) - room), 1 + 0.35 * room)
    axes.set_xlabel("population (robots)", color=_INK)
    axes.set_ylabel("SLO attainment (share of issued requests)", color=_INK)
    if len(curve) <= _MOST_TICKS:
        axes.set_xticks([point.population for point in curve])
    else:
        axes.locator_params(axis="x", integer=True)
    axes.grid(visible=True, color="#e5e7eb", linewidth=0.7)
    axes.tick_params(colors=_GREY, labelcolor=_INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_GREY)
    axes.legend(frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _head(axes: Axes, *, title: str, subtitle: str) -> None:
    lines = textwrap.wrap(f"simulated: {subtitle}" if subtitle else "simulated", _SUBTITLE_WIDTH)
    axes.set_title(
        title, loc="left", color=_INK, fontsize=12.5, fontweight="bold", pad=10 + 12 * len(lines)
    )
    axes.annotate(
        "\n".join(lines),
        xy=(0, 1),
        xycoords="axes fraction",
        xytext=(0, 8),
        textcoords="offset points",
        color=_GREY,
        fontsize=9,
    )


def _write(figure: Figure, path: Path) -> None:
    # Both writers stamp the file otherwise: SVG with the date, PNG with the version.
    stamp = "Date" if path.suffix == ".svg" else "Software"
    try:
        with replacing(path) as fresh:
            figure.savefig(fresh, metadata={stamp: None})
    except OSError as error:
        raise ConfigError(f"{path.name}: cannot write the plot: {error.strerror}") from error
