"""Draws predicted over published latencies, as PNG or SVG.

The picture says itself that predictions are modelled, not measured. Equal inputs give equal bytes
with one version of matplotlib, which is imported when a plot is asked for and drawn through its
object interface, so no window system is touched.
"""

# matplotlib's own stubs leave its keyword arguments untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from takt.errors import ConfigError
from takt.files import replacing
from takt.hardware.architectures import architecture_named
from takt.hardware.calibration import STACKS
from takt.hardware.devices import device_named
from takt.hardware.report import CAVEAT, Comparison, accuracy, worst

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SUFFIXES", "plot_comparisons"]

SUFFIXES = (".png", ".svg")
"""File names a plot can be written to."""

_INK, _GREY, _PALE = "#1b1f24", "#6b7280", "#e5e7eb"
# Okabe and Ito's colours, which colour-blind readers can tell apart.
_COLOURS = ("#d55e00", "#e69f00", "#0072b2", "#009e73", "#cc79a7")
_MARKERS = ("o", "s", "D", "^", "v")
_BAND = 0.25
_LABELS = 6
_TICKS = (5, 10, 20, 50, 100, 200, 400)


def plot_comparisons(compared: Sequence[Comparison], path: Path) -> None:
    """Write the plot to ``path``; a file that is there is replaced.

    Args:
        compared: Figures of both halves or of one; at least one.
        path: Ends in ``.png`` or ``.svg``.

    Raises:
        ConfigError: The suffix is none of :data:`SUFFIXES`, there is nothing to draw, matplotlib
            is missing, or the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"{path.name}: a plot ends in {' or '.join(SUFFIXES)}")
    if not compared:
        raise ConfigError("no published latency to draw")
    try:
        import matplotlib as mpl
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "plots need matplotlib; install it with: pip install 'takt-serve[plot]'"
        ) from error
    with style.context("default"), mpl.rc_context({"svg.hashsalt": "takt"}):
        figure = Figure(figsize=(6.7, 6.5), dpi=200, layout="constrained")
        axes = figure.add_subplot()
        _dress(axes, compared)
        _draw_points(axes, compared)
        _label(axes, [one for one in compared if not one.fitted] or compared)
        _head(axes, compared)
        _write(figure, path)


def _range(compared: Sequence[Comparison]) -> tuple[float, float]:
    times = [time for one in compared for time in (one.published.milliseconds, one.predicted_ms)]
    return min(times) / 1.25, max(times) * 1.25


def _dress(axes: Axes, compared: Sequence[Comparison]) -> None:
    low, high = _range(compared)
    ends = [low, high]
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.fill_between(
        ends,
        [end * (1 - _BAND) for end in ends],
        [end * (1 + _BAND) for end in ends],
        color=_PALE,
        linewidth=0,
        zorder=0,
        label="within 25 %",
    )
    axes.plot(ends, ends, color=_GREY, linewidth=0.9, zorder=1)
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, [str(tick) for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.set_xlabel("published latency (ms), measured by its source", color=_INK)
    axes.set_ylabel(f"predicted latency (ms), {CAVEAT}", color=_INK)
    axes.tick_params(colors=_GREY, labelcolor=_INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_GREY)


def _draw_points(axes: Axes, compared: Sequence[Comparison]) -> None:
    for stack, colour, marker in zip(STACKS, _COLOURS, _MARKERS, strict=True):
        for fitted in (True, False):
            chosen = [one for one in compared if one.fitted is fitted and _stack_of(one) == stack]
            axes.scatter(
                [one.published.milliseconds for one in chosen],
                [one.predicted_ms for one in chosen],
                s=30,
                marker=marker,
                facecolor="none" if fitted else colour,
                edgecolor=colour if fitted else "white",
                linewidth=1.0 if fitted else 0.5,
                zorder=2 if fitted else 3,
                label="" if fitted else stack,
            )
    axes.scatter([], [], s=30, facecolor="none", edgecolor=_GREY, label="hollow: fitted half")
    axes.scatter([], [], s=30, color=_GREY, label="filled: reported half")
    axes.legend(frameon=False, fontsize=8.5, loc="lower right", labelcolor=_INK)


def _stack_of(one: Comparison) -> str:
    return one.published.prefix or one.published.denoise


def _label(axes: Axes, compared: Sequence[Comparison]) -> None:
    """Number the figures that are worst, and name them in the corner no figure reaches."""
    named = worst(compared, _LABELS)
    for number, one in enumerate(named, start=1):
        axes.annotate(
            str(number),
            xy=(one.published.milliseconds, one.predicted_ms),
            xytext=(-4, 4) if one.error > 0 else (4, -4),
            textcoords="offset points",
            ha="right" if one.error > 0 else "left",
            va="bottom" if one.error > 0 else "top",
            fontsize=8,
            fontweight="bold",
            color=_INK,
        )
    axes.annotate(
        "\n".join(
            ["worst of the reported half", *map(_line, range(1, len(named) + 1), named)],
        ),
        xy=(0.02, 0.98),
        xycoords="axes fraction",
        va="top",
        fontsize=7.5,
        color=_GREY,
        linespacing=1.5,
    )


def _line(number: int, one: Comparison) -> str:
    point = one.published
    stage = "" if point.covers == "both" else f" {point.covers}"
    device = device_named(point.device).title.removeprefix("GeForce ")
    title = architecture_named(point.architecture).title
    return (
        f"{number}  {title}{stage}, {device}, {point.stack}: {100 * one.error:+.0f} %"
        f" ({point.source})"
    )


def _head(axes: Axes, compared: Sequence[Comparison]) -> None:
    reported = [one.error for one in compared if not one.fitted]
    summary = f"{len(compared)} published latencies"
    if reported:
        half = accuracy(reported)
        summary += (
            f"; reported half: median error {100 * half.median:.0f} %,"
            f" {100 * half.close:.0f} % within 25 %"
        )
    axes.set_title(
        "Predicted over published latency",
        loc="left",
        color=_INK,
        fontsize=12.5,
        pad=22,
        fontweight="bold",
    )
    axes.annotate(
        summary,
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
