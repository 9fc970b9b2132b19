"""Draws a benchmark: how many requests were answered within which time, and where it went."""

# matplotlib's own stubs leave its keyword arguments untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from takt.cli.benching.figures import EpochResult
from takt.cli.picture_file import ACCENT, ALARM, COLOURS, INK, dress, picture
from takt.core.attainment import RequestRecord
from takt.units import to_ms

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_bench"]


def plot_bench(epochs: Sequence[EpochResult], figures: Mapping[str, Any], path: Path) -> None:
    """Write a picture of a benchmark to ``path``.

    Args:
        epochs: What came.
        figures: The figures of it.
        path: Ends in ``.png`` or ``.svg``.

    Raises:
        ConfigError: The file cannot be written.
    """
    records = [record for epoch in epochs for run in epoch.runs for record in run.records]
    with picture(path, width=11.0, height=4.4) as figure:
        left, right = figure.subplots(1, 2, width_ratios=[1.2, 1.0])
        _draw_latencies(left, records, figures)
        _draw_split(right, figures["split_ms"])
        mark = "paced, " if figures["paced"] else ""
        seconds = f"{figures['seconds']:g} s in {len(figures['epochs'])} epochs"
        dress(left, f"Answered within: {mark}{figures['robots']} robots, {seconds}")
        dress(right, "Parts of it: p50, line to p99")


def _draw_latencies(
    axes: Axes, records: Sequence[RequestRecord], figures: Mapping[str, Any]
) -> None:
    slos = [part["slo_ms"] for part in figures["models"].values()]
    latencies = [to_ms(record.latency) for record in records if record.latency is not None]
    edge = 1.05 * max([*slos, *latencies])
    for number, (model, part) in enumerate(figures["models"].items()):
        own = [record for record in records if record.model == model]
        took = sorted(to_ms(record.latency) for record in own if record.latency is not None)
        colour = COLOURS[number % len(COLOURS)]
        # A request without an answer is never answered within any time: the curve ends below 1.
        shares = [place / len(own) for place in range(1, len(took) + 1)]
        last = shares[-1] if shares else 0.0
        axes.step(
            [0.0, *took, edge],
            [0.0, *shares, last],
            where="post",
            color=colour,
            linewidth=2.0,
            label=model,
        )
        axes.axvline(
            part["slo_ms"],
            color=colour,
            linewidth=1.2,
            linestyle=(0, (1, 2)),
            label=f"slo of {model}",
        )
    axes.axhline(
        figures["target"],
        color=ALARM,
        linewidth=1.2,
        linestyle=(0, (5, 3)),
        label=f"target {figures['target']:g}",
    )
    axes.set_xlim(0, edge)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("milliseconds from sending, on the robot's clock", color=INK)
    axes.set_ylabel("share of issued requests", color=INK)


def _draw_split(axes: Axes, split: Mapping[str, Mapping[str, float]]) -> None:
    names = [*split]
    rows = range(len(names))
    axes.barh(rows, [split[name]["p50"] for name in names], color=ACCENT, height=0.55)
    axes.hlines(
        rows,
        [split[name]["p50"] for name in names],
        [split[name]["p99"] for name in names],
        color=INK,
        linewidth=1.4,
    )
    axes.set_yticks(rows, names)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("milliseconds", color=INK)
