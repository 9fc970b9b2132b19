"""Instants at which something becomes of a request, provided that it still waits by then.

An alarm counts while its request stays in the phase in which it was set.

A request that starts to be computed leaves its alarms behind; they are dropped when their turn
comes. Taking each one out at once would cost a search per row of every launch.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

from takt.core.queue import Queue
from takt.core.request import Request
from takt.units import Nanos

__all__ = ["Alarms"]

_FEW = 256

_Alarm = tuple[Nanos, int, int, Request, Queue]
"""(instant, seq, moves, request, queue). Seq and moves differ between alarms of one kind, so two
requests are never compared."""


class Alarms:
    """Alarms of one kind, at most one per request and stay in a phase."""

    __slots__ = ("_alarms", "_most", "earliest")

    def __init__(self) -> None:
        self._alarms: list[_Alarm] = []
        self._most = _FEW
        self.earliest: float = inf
        """No alarm rings before this instant; infinite when none is set."""

    def __len__(self) -> int:
        return len(self._alarms)

    def set(self, instant: Nanos, request: Request, queue: Queue) -> None:
        """Ring at ``instant`` if ``request`` has waited in ``queue`` until then."""
        if len(self._alarms) >= self._most:
            self._forget()
        heappush(self._alarms, (instant, request.seq, request.moves, request, queue))
        if instant < self.earliest:  # noqa: PLR1730 - half the price of min(), a million times
            self.earliest = instant

    def next(self) -> Nanos | None:
        """The earliest instant, None when nobody waits for one."""
        alarms = self._alarms
        while alarms:
            instant, _, moves, request, _ = alarms[0]
            if request.moves == moves:
                return instant
            heappop(alarms)
        return None

    def ring(self, now: Nanos) -> list[tuple[Nanos, Request, Queue]]:
        """Take out the alarms until ``now``, the earliest first: when they rang, for whom, where.

        Those of earlier stays in a phase are dropped.
        """
        alarms, rung = self._alarms, list[tuple[Nanos, Request, Queue]]()
        while alarms and alarms[0][0] <= now:
            instant, _, moves, request, queue = heappop(alarms)
            if request.moves == moves:
                rung.append((instant, request, queue))
        self.earliest = alarms[0][0] if alarms else inf
        return rung

    def _forget(self) -> None:
        """Drop the alarms of waits that are over: one far in the future would keep its place."""
        self._alarms = [alarm for alarm in self._alarms if alarm[3].moves == alarm[2]]
        heapify(self._alarms)
        self._most = _FEW + 2 * len(self._alarms)
