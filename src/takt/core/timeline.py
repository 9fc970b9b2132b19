"""When each request was waiting and when it was computed: a fold over the scheduler's events."""

from __future__ import annotations

from itertools import pairwise
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


class _Times:
    __slots__ = ("arrival", "marks")

    def __init__(self, arrival: Nanos) -> None:
        self.arrival = arrival
        self.marks: list[Nanos] = []  # prefix start and end, denoise start and end


class Timeline:
    """Follows requests from event to event and gives each one's outcome when it ends."""

    def __init__(self) -> None:
        self._times: dict[int, _Times] = {}
        self._running: dict[Lane, Launch] = {}
        self.busy: dict[Lane, Nanos] = {}
        """Time each lane has spent on launches that ended."""
        self.rows: dict[Stage, list[int]] = {stage: [] for stage in Stage}
        """Rows of each launch that started, by stage."""
        self._since: dict[Lane, Nanos] = {}

    def add(self, event: Event) -> Outcome | None:
        """Take in one event.

        Returns:
            The outcome of the request that it ended, or None.
        """
        if isinstance(event, Submit):
            self._times[event.seq] = _Times(event.arrival)
        elif isinstance(event, Decide):
            for launch in event.launches:
                self._start(launch, event.at)
        elif isinstance(event, Finish):
            self._finish(event)
        elif isinstance(event, Ended):
            return self._outcome(event)
        return None

    def _start(self, launch: Launch, at: Nanos) -> None:
        self._running[launch.lane] = launch
        self._since[launch.lane] = at
        self.rows[launch.lane.stage].append(len(launch.requests))
        self._mark(launch, at)

    def _finish(self, event: Finish) -> None:
        launch = self._running.pop(event.lane)
        self.busy[event.lane] = (
            self.busy.get(event.lane, 0) + event.at - self._since.pop(event.lane)
        )
        self._mark(launch, event.at)

    def _mark(self, launch: Launch, at: Nanos) -> None:
        for seq in launch.requests:
            times = self._times.get(seq)
            if times is not None:  # a cancelled request has ended while its row runs on
                times.marks.append(at)

    def _outcome(self, event: Ended) -> Outcome:
        times = self._times.pop(event.seq)
        instants = [times.arrival, *times.marks, event.at]
        spans = [later - earlier for earlier, later in pairwise(instants)]
        queue, prefix, wait, denoise = [*spans, 0, 0, 0, 0][:4]
        return Outcome(event.seq, event.phase, event.at, queue, prefix, wait, denoise)
