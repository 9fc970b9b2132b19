"""Answers requests that have expired and that nobody else has answered.

A worker refuses expired requests itself. This is for those it does not come to: it is stopped or
stuck, or no slot was free to send them. One timer is set, for the first of all instants; a request
that has its answer by then costs nothing but its place in a heap.

Start reading at :meth:`Expiries.add`.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from takt.gateway.request import GatewayRequest
from takt.gateway.workers import TimerHandle, Timers
from takt.units import Nanos, to_seconds

__all__ = ["Expiries"]

_FEW = 64


class Expiries:
    """The requests of a gateway that have no answer yet, by the instant at which they need one.

    Args:
        timers: An event loop.
        clock: Monotonic, in nanoseconds.
        give_up: Answers a request with the error ``expired``.
    """

    def __init__(
        self,
        timers: Timers,
        clock: Callable[[], Nanos],
        give_up: Callable[[GatewayRequest], None],
    ) -> None:
        self._timers = timers
        self._clock = clock
        self._give_up = give_up
        self._heap: list[tuple[Nanos, int, GatewayRequest]] = []
        self._ties = itertools.count()
        self._most = _FEW
        self._timer: TimerHandle | None = None
        self._timer_at: Nanos = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, request: GatewayRequest) -> None:
        """See to it that ``request`` has an answer in time."""
        if len(self._heap) >= self._most:
            # Answered requests keep their place until it is due: not for as long as a robot says.
            self._heap = [entry for entry in self._heap if not entry[2].answer.done()]
            heapq.heapify(self._heap)
            self._most = max(_FEW, 2 * len(self._heap))
        self._push(request.timing.expires, request)
        if self._timer is None or self._heap[0][0] < self._timer_at:
            self._set_timer()

    def close(self) -> None:
        """Forget everybody."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._heap.clear()

    def _push(self, instant: Nanos, request: GatewayRequest) -> None:
        heapq.heappush(self._heap, (instant, next(self._ties), request))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._heap[0][0]
        delay = to_seconds(max(0, self._timer_at - self._clock()))
        self._timer = self._timers.call_later(delay, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            request = heapq.heappop(self._heap)[2]
            if request.answer.done():
                continue
            last = _last_instant(request)
            if last <= now:
                self._give_up(request)
            else:
                self._push(last, request)
        while self._heap and self._heap[0][2].answer.done():
            heapq.heappop(self._heap)
        if self._heap:
            self._set_timer()


def _last_instant(request: GatewayRequest) -> Nanos:
    """When nobody may be made to wait for ``request`` any more."""
    if request.peer is None or request.ref is None:
        return request.timing.expires
    return request.peer.wait_until(request.ref)
