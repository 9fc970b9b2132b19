"""What a person sees while robots run: a table that lives, or a line now and then.

A terminal gets the table, four times a second, cut to its height. Anything else, such as a log
file, gets one line every few seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from takt.cli.driving.figures import sentences
from takt.cli.driving.outage import away_sentence
from takt.cli.driving.robot import DrivenRobot, RobotView
from takt.core.attainment import Quantiles
from takt.units import MILLISECOND, SECOND, Nanos, to_ms, to_seconds

__all__ = [
    "LOOK_EVERY",
    "Onlooker",
    "print_figures",
    "progress_line",
    "robots_table",
    "show_figures",
    "stages_table",
]

LOOK_EVERY: Nanos = 250 * MILLISECOND
"""Time between two calls of :meth:`Onlooker.look`."""

_LINE_EVERY: Nanos = 5 * SECOND
_BAR = 8
_FRAME_LINES = 6
"""Lines of a table that are not a robot's."""


class Onlooker:
    """Shows robots on a console while they run.

    Args:
        console: Where.
        robots: Whom.
        start: Instant the run starts.
        end: Instant it ends.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(
        self,
        console: Console,
        robots: Sequence[DrivenRobot],
        *,
        start: Nanos,
        end: Nanos,
        clock: Callable[[], Nanos],
    ) -> None:
        self._console = console
        self._robots = robots
        self._start = start
        self._end = end
        self._clock = clock
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._next_line = start + _LINE_EVERY

    def open(self) -> AbstractContextManager[object]:
        """What to be in while :meth:`look` is called."""
        return nullcontext() if self._live is None else self._live

    def look(self) -> None:
        """Show how things stand now."""
        now = self._clock()
        if self._live is None and now < self._next_line:
            return
        self._next_line = now + _LINE_EVERY
        views = [robot.view(now) for robot in self._robots]
        elapsed = max(0, min(now, self._end) - self._start)
        if self._live is None:
            self._console.print(progress_line(views, elapsed), highlight=False, soft_wrap=True)
        else:
            most = max(1, self._console.height - _FRAME_LINES)
            self._live.update(robots_table(views, elapsed, most=most), refresh=True)


def robots_table(views: Sequence[RobotView], elapsed: Nanos, *, most: int) -> Table:
    """A row per robot and one for all of them.

    Args:
        views: The robots.
        elapsed: How long they have run.
        most: Rows there is room for; robots beyond it are summed up in one.
    """
    table = Table(
        box=box.SIMPLE_HEAD,
        title=f"{len(views)} robots, {to_seconds(elapsed):.0f} s{_paced(views)}{_away(views)}",
        title_justify="left",
        title_style="bold",
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("robot", overflow="ellipsis", no_wrap=True)
    table.add_column("model", overflow="ellipsis", no_wrap=True)
    for header in ("Hz", "queue", "p50 ms", "p99 ms", "in slo", "on time", "starved"):
        table.add_column(header, justify="right", no_wrap=True)
    shown = len(views) if len(views) <= most else most - 1
    for view in views[:shown]:
        table.add_row(escape(view.name), escape(view.model), *_cells(view, elapsed))
    if shown < len(views):
        table.add_row(f"and {len(views) - shown} more", "", *[""] * 7)
    if len(views) > 1:
        table.add_section()
        table.add_row("all", "", *_total_cells(views, elapsed), style="bold")
    return table


def progress_line(views: Sequence[RobotView], elapsed: Nanos) -> str:
    """How things stand, for a log."""
    issued, answered, met = (
        sum(getattr(view, name) for view in views) for name in ("issued", "answered", "met")
    )
    return (
        f"{to_seconds(elapsed):4.0f} s{_paced(views)}: {len(views)} robots,"
        f" {answered} of {issued} requests answered,"
        f" {_percent(met, issued)} within the slo, {_starved(views)} of ticks starved{_away(views)}"
    )


def print_figures(
    figures: dict[str, Any],
    console: Console,
    *,
    as_json: bool,
    show: Callable[[dict[str, Any], Console], None],
) -> None:
    """Print what a run showed.

    Args:
        figures: What it showed.
        console: Of the person; not standard output where that takes JSON.
        as_json: Print them as JSON; a person is told of a server that went away all the same.
        show: Says them in sentences otherwise.
    """
    if not as_json:
        show(figures, console)
        return
    print(json.dumps(figures, indent=2))
    away = away_sentence(figures)
    if away is not None:
        console.print(escape(away), highlight=False, soft_wrap=True)


def show_figures(figures: dict[str, Any], console: Console) -> None:
    """Say what a run showed."""
    first, *rest = sentences(figures)
    console.print(f"[bold]{escape(first)}[/bold]", highlight=False, soft_wrap=True)
    for line in rest:
        console.print(escape(line), highlight=False, soft_wrap=True)
    if figures["stages_ms"]:
        console.print(stages_table(figures["stages_ms"]))


def _cells(view: RobotView, elapsed: Nanos) -> list[str]:
    return [
        _rate(view.answered, elapsed),
        _queue_bar(view.remaining, view.longest_chunk),
        *_quantile_cells(view.latencies),
        _percent(view.met, view.issued),
        _percent(view.on_time, view.issued),
        _starved([view]),
    ]


def _total_cells(views: Sequence[RobotView], elapsed: Nanos) -> list[str]:
    issued, answered, met, on_time = (
        sum(getattr(view, name) for view in views)
        for name in ("issued", "answered", "met", "on_time")
    )
    return [
        _rate(answered, elapsed),
        "",
        *_quantile_cells(time for view in views for time in view.latencies),
        _percent(met, issued),
        _percent(on_time, issued),
        _starved(views),
    ]


def _rate(count: int, elapsed: Nanos) -> str:
    return f"{count / to_seconds(elapsed):.1f}" if elapsed else "-"


def _queue_bar(remaining: int, longest: int) -> str:
    full = round(_BAR * remaining / longest) if longest else 0
    return f"{'█' * full}{'░' * (_BAR - full)} {remaining:3d}"


def _quantile_cells(latencies: Iterable[Nanos]) -> tuple[str, str]:
    latency = Quantiles.of(latencies)
    if latency is None:
        return "-", "-"
    return f"{to_ms(latency.p50):.1f}", f"{to_ms(latency.p99):.1f}"


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _paced(views: Sequence[RobotView]) -> str:
    return ", paced" if any(view.is_paced for view in views) else ""


def _away(views: Sequence[RobotView]) -> str:
    number = sum(view.is_away for view in views)
    return f", {number} without a server" if number else ""


def _starved(views: Sequence[RobotView]) -> str:
    return _percent(sum(v.starved_ticks for v in views), sum(v.ticks for v in views))


def stages_table(stages: Mapping[str, Mapping[str, float]]) -> Table:
    """A row of quantiles, in milliseconds, for each part of the time."""
    quantiles = ("p50", "p90", "p99", "max")
    table = Table(
        "where the time went",
        *(f"{name} ms" for name in quantiles),
        box=box.SIMPLE_HEAD,
        show_edge=False,
        collapse_padding=True,
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name, part in stages.items():
        table.add_row(escape(name), *(f"{part[quantile]:.1f}" for quantile in quantiles))
    return table
