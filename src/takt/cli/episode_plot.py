"""Draws an episode: the queue over time, where each answer's time went, and every splice.

Equal logs give equal bytes with one version of matplotlib, as in :mod:`takt.sim.plot`. matplotlib
is imported when a plot is asked for, through its object interface.

Start reading at :func:`plot_episode`.
"""

# matplotlib's own stubs leave its keyword arguments untyped.
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from takt.client.episode import Episode, Record, parts_ms
from takt.errors import ConfigError
from takt.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["SUFFIXES", "plot_episode"]

SUFFIXES = (".png", ".svg")
"""File names a plot can be written to."""

_INK, _GREY, _ACCENT, _ALARM = "#1b1f24", "#6b7280", "#0b5cad", "#c2410c"
_STATE_COLOURS = {"degraded": "#e69f00", "hold": "#c2410c", "stopped": "#1b1f24"}
# Okabe and Ito's colours, which colour-blind readers can tell apart.
_PART_COLOURS = ("#d1d5db", "#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#7a5195", "#8c6d1f")


def plot_episode(episode: Episode, path: Path) -> None:
    """Write a plot of ``episode`` to ``path``; a file that is there is replaced.

    Args:
        episode: What was logged.
        path: Ends in ``.png`` or ``.svg``.

    Raises:
        ConfigError: The suffix is none of :data:`SUFFIXES`, matplotlib is missing, or the file
            cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"{path.name}: a plot ends in {' or '.join(SUFFIXES)}")
    try:
        import matplotlib as mpl
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "plots need matplotlib; install it with: pip install 'takt-serve[plot]'"
        ) from error
    with style.context("default"), mpl.rc_context({"svg.hashsalt": "takt"}):
        figure = Figure(figsize=(9.0, 8.0), dpi=150, layout="constrained")
        queue, latency, splices = figure.subplots(3, 1, sharex=True)
        _draw_queue(queue, episode)
        _draw_latency(latency, episode.of("chunk"))
        _draw_splices(splices, episode.of("chunk"))
        for axes in (queue, latency, splices):
            _dress(axes)
        splices.set_xlabel("seconds since the log was opened", color=_INK)
        splices.set_xlim(0, max(episode.end_ms / 1e3, 1e-3))
        stamp = "Date" if path.suffix == ".svg" else "Software"
        try:
            with replacing(path) as fresh:
                figure.savefig(fresh, metadata={stamp: None})
        except OSError as error:
            raise ConfigError(f"{path.name}: cannot write the plot: {error.strerror}") from error


def _draw_queue(axes: "Axes", episode: Episode) -> None:
    levels = [record for record in episode.records if record["event"] in ("action", "chunk")]
    axes.step(
        _seconds(levels),
        [record["remaining"] for record in levels],
        where="post",
        color=_ACCENT,
        linewidth=1.2,
        label="actions queued",
    )
    _shade_states(axes, episode)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("actions", color=_INK)
    _head(axes, "Queue, and the states that are not active")


def _shade_states(axes: "Axes", episode: Episode) -> None:
    changes = episode.of("state")
    ends = [*(change["at_ms"] for change in changes[1:]), episode.end_ms]
    named: set[str] = set()
    for change, end in zip(changes, ends, strict=False):
        colour = _STATE_COLOURS.get(change["after"])
        if colour is not None:
            label = None if change["after"] in named else change["after"]
            named.add(change["after"])
            axes.axvspan(
                change["at_ms"] / 1e3, end / 1e3, color=colour, alpha=0.2, linewidth=0, label=label
            )


def _draw_latency(axes: "Axes", chunks: Sequence[Record]) -> None:
    base = [0.0] * len(chunks)
    whole = [parts_ms([chunk]) for chunk in chunks]
    for index, name in enumerate(parts_ms(chunks)):
        took = [parts.get(name, [0.0])[0] for parts in whole]
        axes.vlines(
            _seconds(chunks),
            base,
            [low + more for low, more in zip(base, took, strict=True)],
            color=_PART_COLOURS[index % len(_PART_COLOURS)],
            linewidth=2.5,
            label=name,
        )
        base = [low + more for low, more in zip(base, took, strict=True)]
    axes.set_ylim(bottom=0)
    axes.set_ylabel("milliseconds", color=_INK)
    _head(axes, "Where the time of each answer went, from the bottom up")


def _draw_splices(axes: "Axes", chunks: Sequence[Record]) -> None:
    joined = [chunk for chunk in chunks if "splice" in chunk]
    for name, colour, label in (
        ("disagreement", _GREY, "old and new plan apart, at most"),
        ("step", _ALARM, "step the robot is made to take"),
    ):
        shown = [chunk for chunk in joined if name in chunk["splice"]]
        axes.plot(
            _seconds(shown),
            [chunk["splice"][name] for chunk in shown],
            color=colour,
            marker="o",
            markersize=3.5,
            linestyle="none",
            label=label,
        )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("largest joint", color=_INK)
    _head(axes, "Splices, in the units of the policy")


def _seconds(records: Sequence[Record]) -> list[float]:
    return [record["at_ms"] / 1e3 for record in records]


def _head(axes: "Axes", title: str) -> None:
    axes.set_title(title, loc="left", color=_INK, fontsize=11, fontweight="bold")


def _dress(axes: "Axes") -> None:
    axes.grid(visible=True, color="#e5e7eb", linewidth=0.7)
    axes.tick_params(colors=_GREY, labelcolor=_INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_GREY)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))
