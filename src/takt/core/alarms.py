"""Instants at which something becomes of a request, provided that it still waits by then.

An alarm counts while its request stays in the phase in which it was set.

A request that starts to be computed leaves its alarms behind; they are dropped when their turn
comes. Taking each one out at once would cost a search per row of every launch. They lie in order in
a plain list, so that many that have been left behind are dropped at the price of one; taking them
off a heap one by one would make a single decision in a hundred several times as long.
"""

from __future__ import annotations

from bisect import insort
from math import inf

from takt.core.queue import Queue
from takt.core.request import Request
from takt.units import Nanos

__all__ = ["Alarms"]

_FEW = 64

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
        alarms = self._alarms
        if len(alarms) >= self._most:
            self._forget()
        insort(alarms, (instant, request.seq, request.moves, request, queue))
        if instant < self.earliest:  # noqa: PLR1730 - half the price of min(), a million times
            self.earliest = instant

    def next(self) -> Nanos | None:
        """The earliest instant, None when nobody waits for one."""
        alarms = self._alarms
        if not alarms:
            return None
        instant, _, moves, request, _ = alarms[0]
        if request.moves == moves:
            return instant
        self._forget_first()
        return alarms[0][0] if alarms else None

    def ring(self, now: Nanos) -> list[tuple[Nanos, Request, Queue]]:
        """Take out the alarms until ``now``, the earliest first: when they rang, for whom, where.

        Those of earlier stays in a phase are dropped.
        """
        alarms, count = self._alarms, 0
        rung: list[tuple[Nanos, Request, Queue]] = []
        for instant, _, moves, request, queue in alarms:
            if instant > now:
                break
            count += 1
            if request.moves == moves:
                rung.append((instant, request, queue))
        del alarms[:count]
        self.earliest = alarms[0][0] if alarms else inf
        return rung

    def _forget_first(self) -> None:
        """Drop the alarms of waits that are over, until the first of one that is not."""
        alarms = self._alarms
        for place, (_, _, moves, request, _) in enumerate(alarms):
            if request.moves == moves:
                del alarms[:place]
                return
        alarms.clear()

    def _forget(self) -> None:
        """Drop the alarms of waits that are over: one far in the future would keep its place."""
        alarms = self._alarms
        alarms[:] = [alarm for alarm in alarms if alarm[3].moves == alarm[2]]
        self._most = _FEW + 2 * len(alarms)
