"""Instants at which something becomes of a request, provided that it still waits by then.

A request that starts to be computed leaves its alarms behind; they are dropped when their turn
comes. Taking each one out at once would cost a search per row of every launch.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

from takt.core.request import Request
from takt.units import Nanos

__all__ = ["Alarms"]

_FEW = 256

_Alarm = tuple[Nanos, int, int, Request]
"""(instant, seq, wait, request). Seq and wait differ between alarms of one kind, so two requests
are never compared."""


class Alarms:
    """Alarms of one kind, at most one per request and wait."""

    __slots__ = ("_alarms", "_most", "earliest")

    def __init__(self) -> None:
        self._alarms: list[_Alarm] = []
        self._most = _FEW
        self.earliest: float = inf
        """No alarm rings before this instant; infinite when none is set."""

    def __len__(self) -> int:
        return len(self._alarms)

    def set(self, instant: Nanos, request: Request) -> None:
        """Ring for ``request`` at ``instant`` if its present wait lasts that long."""
        if len(self._alarms) >= self._most:
            self._forget()
        heappush(self._alarms, (instant, request.seq, request.wait, request))
        if instant < self.earliest:  # noqa: PLR1730 - half the price of min(), a million times
            self.earliest = instant

    def next(self) -> Nanos | None:
        """The earliest instant, None when nobody waits for one."""
        alarms = self._alarms
        while alarms:
            instant, _, wait, request = alarms[0]
            if request.wait == wait:
                self.earliest = instant
                return instant
            heappop(alarms)
        self.earliest = inf
        return None

    def ring(self, now: Nanos) -> list[tuple[Nanos, Request]]:
        """Take out the alarms until ``now``, the earliest first: their instants and requests."""
        alarms, rung = self._alarms, list[tuple[Nanos, Request]]()
        while alarms and alarms[0][0] <= now:
            instant, _, wait, request = heappop(alarms)
            if request.wait == wait:
                rung.append((instant, request))
        self.earliest = alarms[0][0] if alarms else inf
        return rung

    def _forget(self) -> None:
        """Drop the alarms of waits that are over: one far in the future would keep its place."""
        self._alarms = [alarm for alarm in self._alarms if alarm[3].wait == alarm[2]]
        heapify(self._alarms)
        self._most = _FEW + 2 * len(self._alarms)
