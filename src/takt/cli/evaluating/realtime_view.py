"""What a person sees while a robot is driven: the picture, the queue, and what was starved.

The panel is drawn by a thread of its own, so that drawing takes no time from a control tick.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from takt.cli.driving.figures import quantiles_ms
from takt.cli.evaluating.asking import Meter
from takt.cli.evaluating.view import EpisodeView
from takt.client.realtime import RealtimeEpisode, RealtimeMoment
from takt.units import Nanos

__all__ = ["RealtimeView"]

_REFRESH_HZ = 5.0
_NEWEST = 100
"""Durations that the panel looks at."""


class RealtimeView:
    """Shows episodes on a console.

    Args:
        console: Where. A terminal gets a panel that lives, a file a line per episode.
        title: What is run.
        total: Episodes to come.
        meter: What the connections measured.
    """

    def __init__(self, console: Console, *, title: str, total: int, meter: Meter) -> None:
        self._episodes = EpisodeView(console, title=title, total=total)
        self._meter = meter
        self._newest: RealtimeMoment | None = None
        self._live = (
            Live(console=console, get_renderable=self.panel, refresh_per_second=_REFRESH_HZ)
            if console.is_terminal
            else None
        )

    def open(self) -> AbstractContextManager[object]:
        """What to be in while episodes run."""
        return nullcontext() if self._live is None else self._live

    def look(self, moment: RealtimeMoment) -> None:
        """A tick is over."""
        if moment.moment is not None:
            self._newest = moment

    def finished(self, episode: RealtimeEpisode) -> None:
        """An episode is over."""
        self._episodes.finished(episode.result)

    def panel(self) -> Group:
        """Everything now."""
        newest = self._newest
        if newest is None or newest.moment is None:
            return Group(Text("waiting for the first step"))
        return Group(self._episodes.panel(newest.moment), Text("\n".join(self._lines(newest))))

    def _lines(self, newest: RealtimeMoment) -> list[str]:
        status = newest.loop.status()
        connected = "" if status.is_connected else ", not connected"
        lines = [
            f"{status.state.value}{connected}, {status.remaining} actions queued",
            f"{status.executed} executed, {status.starved_ticks} ticks starved,"
            f" {status.answered} chunks, {status.late} late",
            f"round trip {_p50_and_p99(self._meter.round_trips)}{self._size()}",
            f"step {_p50_and_p99(newest.robot.step_times)}, observation"
            f" {_p50_and_p99(newest.robot.observe_times)}, {status.skipped_ticks} ticks left out",
        ]
        return lines if status.last_failure is None else [*lines, status.last_failure]

    def _size(self) -> str:
        size = self._meter.usual_bytes
        return "" if size is None else f", {size} bytes per observation"


def _p50_and_p99(durations: Sequence[Nanos]) -> str:
    found = quantiles_ms(durations[-_NEWEST:])
    return "unknown" if found is None else f"{found['p50']:.1f} ms, p99 {found['p99']:.1f} ms"
