"""When each request was waiting and when it was computed: a fold over the scheduler's events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from takt.core.events import Decide, Ended, Event, Finish, Submit
from takt.core.launch import Lane, Launch
from takt.core.request import Phase, Stage
from takt.units import Nanos

__all__ = ["Outcome", "Timeline"]


class Outcome(NamedTuple):
    """How one request ended and where its time on the server went."""

    seq: int
    phase: Phase
    at: Nanos
    queue: Nanos
    """Arrival until its prefix launch started, or until it ended without one."""
    prefix: Nanos
    wait: Nanos
    """End of its prefix launch until its denoise launch started."""
    denoise: Nanos


class Timeline:
    """Follows requests from event to event and gives each one's outcome when it ends."""

    def __init__(self) -> None:
        # Arrival, then start and end of the prefix launch and of the denoise launch.
        self._instants: dict[int, list[Nanos]] = {}
        self._running: dict[Lane, tuple[Nanos, list[list[Nanos]]]] = {}
        self.busy: dict[Lane, Nanos] = {}
        """Time each lane has spent on launches that ended."""
        self.rows: dict[Stage, list[int]] = {stage: [] for stage in Stage}
        """Rows of each launch that started, by stage."""

    def add(self, event: Event) -> Outcome | None:
        """Take in one event.

        Returns:
            The outcome of the request that it ended, or None.
        """
        outcomes = self.add_all((event,))
        return outcomes[0] if outcomes else None

    def add_all(self, events: Iterable[Event]) -> list[Outcome]:
        """Take in events, in their order; returns the outcomes of the requests that they ended."""
        outcomes: list[Outcome] = []
        for event in events:
            if isinstance(event, Decide):
                at, launches, _ = event
                for launch in launches:
                    self._start(launch, at)
            elif isinstance(event, Finish):
                self._finish(event)
            elif isinstance(event, Ended):
                outcomes.append(self._outcome(event))
            elif isinstance(event, Submit):
                self._instants[event.seq] = [event.arrival]
        return outcomes

    def _start(self, launch: Launch, at: Nanos) -> None:
        lane = launch.lane
        rows: list[list[Nanos]] = []
        for seq in launch.requests:
            instants = self._instants[seq]
            instants.append(at)
            rows.append(instants)
        self._running[lane] = at, rows
        self.rows[lane.stage].append(len(rows))

    def _finish(self, event: Finish) -> None:
        at, lane, _ = event
        since, rows = self._running.pop(lane)
        self.busy[lane] = self.busy.get(lane, 0) + at - since
        for instants in rows:  # nobody reads those of a request that was cancelled meanwhile
            instants.append(at)

    def _outcome(self, event: Ended) -> Outcome:
        at, seq, phase = event
        # A denoise loop in several launches is one span until the end.
        instants = self._instants.pop(seq)[:4]
        instants += at, at, at, at
        arrival, prefix, wait, denoise, end = instants[:5]
        return Outcome(
            seq, phase, at, prefix - arrival, wait - prefix, denoise - wait, end - denoise
        )
