"""Plots of the experiment on asynchronous inference, from its result alone.

Start reading at :func:`draw`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from benchmarks.client.async_figures import bound_of
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["PLOTS", "draw"]

COLOURS: Mapping[str, str] = {
    "local": "#9ca3af",
    "remote": "#111827",
    "g0": "#a16207",
    "g0.3": "#c2410c",
    "g0.5": "#be185d",
    "g0.7": "#7c3aed",
    "g0.9": "#0891b2",
    "ours": "#0b5cad",
    "ours 9": "#15803d",
}
STEPS = ("g0", "g0.3", "g0.5", "g0.7", "g0.9", "ours")
"""Arms whose queues are shown."""
ASYNCHRONOUS = ("g0.3", "g0.5", "g0.7", "g0.9", "ours", "ours 9")
PLOTS = ("async-queue.svg", "async-speed.svg", "async-cost.svg", "async-splices.svg")

Result = Mapping[str, Any]


def draw(result: Result, folder: Path) -> list[str]:
    """Draw every plot there are figures for.

    Returns:
        Names of the files, of :data:`PLOTS`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[str] = []
    figures = (_queues(result), _speeds(result), _costs(result), _splices(result))
    with mpl.rc_context({"svg.hashsalt": "takt", "svg.fonttype": "none", "font.size": 9}):
        for name, figure in zip(PLOTS, figures, strict=True):
            if figure is not None:
                figure.savefig(
                    folder / name, format="svg", metadata={"Date": None}, facecolor="white"
                )
                drawn.append(name)
    return drawn


def _queues(result: Result) -> Figure | None:
    """Actions left over time, one panel per arm."""
    queues: Mapping[str, Mapping[str, str]] = result["queues"]
    if not queues:
        return None
    period_s = result["plan"]["period_ms"] / 1e3
    figure = Figure(figsize=(8.4, 4.2), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    for axes, arm in zip(panels.flat, STEPS, strict=True):
        for (ticks, by_arm), style in zip(queues.items(), ("-", "--"), strict=False):
            if arm not in by_arm:
                continue
            levels = [int(level) for level in by_arm[arm].split()]
            times = np.arange(len(levels)) * period_s
            x = result["plan"]["executed_in_sequence"] / float(ticks)
            axes.step(
                times, levels, style, where="post", color=COLOURS[arm], linewidth=1.0,
                label=f"x = {x:g}",
            )  # fmt: skip
        axes.set_title(result["arms"].get(arm, arm), fontsize=9)
        _tidy(axes)
    for axes in panels[:, 0]:
        axes.set_ylabel("actions left")
    for axes in panels[-1]:
        axes.set_xlabel("s")
    _legend(figure, panels.flat[0], 2)
    return figure


def _speeds(result: Result) -> Figure | None:
    """How many times as fast as sequential, over x; and completion time over c."""
    points: Sequence[Result] = result["sweep"]
    if not points:
        return None
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    xs = np.geomspace(min(p["x"] for p in points) * 0.9, max(p["x"] for p in points) * 1.1, 80)
    left.plot(xs, [bound_of(x) for x in xs], color="#6b7280", linewidth=3, alpha=0.35)
    left.annotate("bound (1 + x) / max(1, x)", (xs[40], bound_of(xs[40])), fontsize=8)
    for arm in ASYNCHRONOUS:
        found = _having(points, arm, "beside remote", "speedup_moving")
        _with_bars(left, [p["x"] for p, _ in found], [v for _, v in found], arm, result)
    left.set(xlabel="x = c n, with n = 8", ylabel="times as fast as sequential")
    _marked(left, [p["x"] for p in points])
    for arm in ("local", "remote", "g0", "g0.5", "g0.7", "ours"):
        found = [(p, p["arms"][arm]["completion_s"]) for p in points if arm in p["arms"]]
        found = [(p, time) for p, time in found if time]
        right.plot(
            [p["c"] for p, _ in found], [time["mean"] for _, time in found], "o-",
            color=COLOURS[arm], label=result["arms"].get(arm, arm), linewidth=1.2, markersize=3,
        )  # fmt: skip
    right.set(xlabel="c = environment_dt / answer time", ylim=(0, None))
    _marked(right, [p["c"] for p in points])
    right.set_ylabel("s until solved, mean")
    for axes in (left, right):
        _tidy(axes)
    _legend(figure, left, 5, right)
    return figure


def _costs(result: Result) -> Figure | None:
    """What an arm asks for, beside the time it takes, at three values of c."""
    points = _spread([p for p in result["sweep"] if p["x"] >= 1], 3)
    if not points:
        return None
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    panels = figure.subplots(1, len(points), sharey=True, squeeze=False)[0]
    for axes, point in zip(panels, points, strict=True):
        for arm, found in point["arms"].items():
            if arm not in COLOURS or not found["completion_s"]:
                continue
            x, y = found["inferences_per_solved"], found["completion_s"]["mean"]
            axes.plot(
                [x], [y], "o", color=COLOURS[arm], markersize=6, label=result["arms"].get(arm, arm)
            )
            solved = f"{found['solved']}/{found['episodes']}"
            axes.annotate(solved, (x, y), textcoords="offset points", xytext=(4, 4), fontsize=7)
        asked = [found["inferences_per_solved"] for found in point["arms"].values()]
        axes.set(xlabel="inferences per solved episode", ylim=(0, None))
        axes.set_xlim(0, 1.15 * max((each for each in asked if each), default=1.0))
        axes.margins(y=0.1)
        axes.set_title(f"c = {point['c']:g}, x = {point['x']:g}", fontsize=9)
        _tidy(axes)
    panels[0].set_ylabel("s until solved, mean")
    _legend(figure, panels[0], 4, *panels[1:])
    return figure


def _splices(result: Result) -> Figure | None:
    """Jumps where plans meet, and the hand's jerk, over x."""
    points: Sequence[Result] = result["sweep"]
    if not points:
        return None
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    panels = figure.subplots(1, 2)
    measures = (("splice_step", "p90", "largest jump at a splice, cm (p90)"),
                ("jerk_m_s3", "p50", "jerk of the hand, m/s3 (median)"))  # fmt: skip
    for axes, (measure, cut, title) in zip(panels, measures, strict=True):
        for arm in (*COLOURS, *_BLENDED):
            found = [(p["x"], p["arms"][arm][measure]) for p in points if arm in p["arms"]]
            found = [(x, value[cut]) for x, value in found if value]
            if arm != "local" and found:
                axes.plot(
                    [x for x, _ in found], [value for _, value in found],
                    "s--" if arm in _BLENDED else "o-",
                    color=COLOURS[_BLENDED.get(arm, arm)], label=result["arms"].get(arm, arm),
                    linewidth=1.0, markersize=3,
                )  # fmt: skip
        axes.set(xlabel="x = c n, with n = 8", ylabel=title, ylim=(0, None))
        _marked(axes, [p["x"] for p in points])
        _tidy(axes)
    _legend(figure, panels[0], 5)
    return figure


_BLENDED: Mapping[str, str] = {"g0.7 blended": "g0.7", "ours blended": "ours"}


def _having(
    points: Iterable[Result], arm: str, beside: str, measure: str
) -> list[tuple[Result, Mapping[str, Any]]]:
    found = [(p, p["arms"].get(arm, {}).get(beside, {}).get(measure)) for p in points]
    return [(point, value) for point, value in found if value]


def _with_bars(
    axes: Axes, xs: Sequence[float], values: Sequence[Mapping[str, Any]], arm: str, result: Result
) -> None:
    if not xs:
        return
    middle = np.array([value["value"] for value in values])
    ends = np.array([value["interval_95"] or [value["value"]] * 2 for value in values])
    errors = np.abs(ends.T - middle)
    axes.errorbar(
        xs, middle, yerr=errors, fmt="o-", color=COLOURS[arm], label=result["arms"].get(arm, arm),
        linewidth=1.2, markersize=3, elinewidth=0.7,
    )  # fmt: skip


def _spread(points: Sequence[Result], count: int) -> list[Result]:
    """Some of the points, evenly, the first included."""
    step = max(1, len(points) // count)
    return list(points[::step][:count])


def _marked(axes: Axes, values: Iterable[float]) -> None:
    """A logarithmic axis with the values that were run, and no others."""
    shown = sorted(set(values))
    axes.set_xscale("log")
    axes.set_xticks(shown, [f"{value:.3g}" for value in shown], fontsize=8)
    axes.minorticks_off()


def _tidy(axes: Axes) -> None:
    axes.grid(color="#e5e7eb", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, first: Axes, columns: int, *others: Axes) -> None:
    labelled: dict[str, Any] = {}
    for axes in (first, *others):
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            labelled.setdefault(label, handle)
    figure.legend(
        list(labelled.values()), list(labelled), loc="outside lower center", ncols=columns,
        frameon=False,
    )  # fmt: skip
