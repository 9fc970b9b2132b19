"""Draws stories: lanes over time, the queues below, and every request that was missed."""

# matplotlib's own stubs leave its keyword arguments untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from takt.cli.picture_file import ALARM, COLOURS, INK, dress, picture
from takt.cli.tracing.story import LaunchSpan, Story, Waiting, Window
from takt.core.launch import Lane
from takt.core.request import Phase, Stage
from takt.units import Nanos, to_ms

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_stories"]

_WIDTH, _LANE_HEIGHT, _REST = 10.0, 0.55, 3.2
_BAR = 0.76
_ROOM_FOR_TEXT = 1 / 45
"""Part of the picture's width that the number of rows needs."""
_MISSED = (Phase.SUPERSEDED, Phase.EXPIRED, Phase.CANCELLED, Phase.FAILED)
_LINES = {Stage.PREFIX: "solid", Stage.DENOISE: (0, (3, 1.5))}


def plot_stories(
    stories: Sequence[Story], path: Path, window: Window, *, subtitle: str = ""
) -> None:
    """Write a picture of stories to ``path``.

    Args:
        stories: At least one.
        path: Ends in ``.png`` or ``.svg``.
        window: What to show of them.
        subtitle: Where they come from.

    Raises:
        ConfigError: The file cannot be written.
    """
    end = max(story.end for story in stories) if window.end is None else window.end
    lanes = sorted({lane for story in stories for lane in story.lanes})
    models = [*dict.fromkeys(model.name for story in stories for model in story.setup.models)]
    colours = {model: COLOURS[n % len(COLOURS)] for n, model in enumerate(models)}
    height = _REST + _LANE_HEIGHT * len(lanes)
    with picture(path, width=_WIDTH, height=height) as figure:
        ratios = [0.6 + _LANE_HEIGHT * len(lanes), 1.6]
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
        _draw_lanes(above, stories, lanes, colours, Window(window.start, end))
        _draw_queues(below, stories, colours, end)
        for axes in (above, below):
            _draw_setups(axes, stories)
        formations = ", ".join(dict.fromkeys(story.setup.formation for story in stories))
        dress(above, f"Launches with their rows, {formations}{subtitle and f': {subtitle}'}")
        dress(below, "Requests that wait")
        below.set_xlabel("milliseconds since the trace began", color=INK)
        below.set_xlim(to_ms(window.start), max(to_ms(end), to_ms(window.start) + 1e-3))


def _draw_lanes(
    axes: Axes,
    stories: Sequence[Story],
    lanes: Sequence[Lane],
    colours: Mapping[str, str],
    window: Window,
) -> None:
    rows = {lane: len(lanes) - number for number, lane in enumerate(lanes)}
    spans = [span for story in stories for span in story.launches]
    for model, colour in colours.items():
        own = [span for span in spans if span.launch.model == model]
        axes.barh(
            [rows[span.launch.lane] for span in own],
            [to_ms(span.end - span.start) for span in own],
            left=[to_ms(span.start) for span in own],
            height=_BAR,
            color=colour,
            edgecolor="white",
            linewidth=0.6,
            label=model,
        )
    for span in spans:
        _label(axes, span, rows[span.launch.lane], window)
    _draw_missed(axes, stories)
    several = len({lane.device for lane in lanes}) > 1
    axes.set_yticks(
        [0, *rows.values()], ["missed", *(_lane_name(lane, several=several) for lane in lanes)]
    )
    axes.set_ylim(-0.6, len(lanes) + 0.6)


def _label(axes: Axes, span: LaunchSpan, row: int, window: Window) -> None:
    """Write the number of rows where there is room for it."""
    end = span.end if window.end is None else min(span.end, window.end)
    start = max(span.start, window.start)
    if end - start < _ROOM_FOR_TEXT * ((window.end or end) - window.start):
        return
    axes.text(
        to_ms((start + end) // 2),
        row,
        str(len(span.launch.requests)),
        color=INK,
        fontsize=8,
        horizontalalignment="center",
        verticalalignment="center",
    )


def _draw_missed(axes: Axes, stories: Sequence[Story]) -> None:
    lives = [life for story in stories for life in story.lives if life.phase in _MISSED]
    for phase, marker in zip(_MISSED, ("v", "x", "|", "X"), strict=True):
        own = [to_ms(life.end) for life in lives if life.phase is phase]
        if own:
            axes.plot(
                own,
                [0.0] * len(own),
                color=ALARM,
                marker=marker,
                markersize=6,
                linestyle="none",
                label=phase.value,
            )


def _draw_queues(
    axes: Axes, stories: Sequence[Story], colours: Mapping[str, str], end: Nanos
) -> None:
    changes = sorted(chain.from_iterable(story.waiting for story in stories))
    for model, colour in colours.items():
        for stage in Stage:
            own = [it for it in changes if (it.model, it.stage) == (model, stage)]
            if own:
                axes.step(
                    [to_ms(at) for at in (*(it.at for it in own), end)],
                    [*_lengths(own), own[-1].requests],
                    where="post",
                    color=colour,
                    linestyle=_LINES[stage],
                    linewidth=1.4,
                    label=f"{model}, {stage.name.lower()}",
                )
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="y", integer=True)
    axes.set_ylabel("requests", color=INK)


def _lengths(changes: Sequence[Waiting]) -> list[int]:
    return [change.requests for change in changes]


def _draw_setups(axes: Axes, stories: Sequence[Story]) -> None:
    for story in stories[1:]:
        axes.axvline(to_ms(story.start or 0), color=INK, linewidth=0.9, linestyle=(0, (1, 2)))


def _lane_name(lane: Lane, *, several: bool) -> str:
    stage = lane.stage.name.lower()
    return f"device {lane.device} {stage}" if several else stage
