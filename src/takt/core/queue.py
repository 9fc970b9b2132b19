"""The requests of one model that wait for one stage, in two ranks.

Feasible requests stand in (order, seq) order; a request's order is its due, later by one slo per
class of :attr:`~takt.core.request.Request.priority`. A *hopeless* request, one that can no longer
be on time, stands behind all of them, earliest order first, and takes only places that no feasible
request can use; :mod:`takt.core.scheduler` moves requests between the ranks as time passes.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from takt.core.model import Model
from takt.core.request import Request, Stage
from takt.errors import InvariantError
from takt.units import Nanos

__all__ = ["Entry", "Queue"]

Entry = tuple[int, int, Request]
"""(order, seq, request): seq differs between requests, so two requests are never compared."""


class Queue:
    """Requests of one model waiting for one stage."""

    __slots__ = ("feasible", "hopeless", "model", "service", "stage", "turn")

    def __init__(self, model: Model, stage: Stage, service: tuple[Nanos, ...] = (0,)) -> None:
        self.model = model
        self.stage = stage
        self.service = service
        """Expected time from the start of this stage to the answer, by layout."""
        self.feasible: list[Entry] = []
        """Those that can still be on time, in (order, seq) order."""
        self.hopeless: list[Entry] = []
        """Those that yield to every feasible request, in (order, seq) order."""
        self.turn = 0
        """Number of the launch that last took from this queue, 0 if none did."""

    def __len__(self) -> int:
        return len(self.feasible) + len(self.hopeless)

    def add(self, request: Request) -> None:
        """Put ``request`` among the feasible."""
        insort(self.feasible, (request.order, request.seq, request))

    def yield_place(self, request: Request) -> None:
        """Move ``request`` behind all feasible requests."""
        self._take(self.feasible, request)
        insort(self.hopeless, (request.order, request.seq, request))

    def regain_place(self, request: Request) -> None:
        """Give ``request`` its order among the feasible back."""
        self._take(self.hopeless, request)
        self.add(request)

    def yields(self, request: Request) -> bool:
        """Whether ``request`` waits here behind the feasible."""
        return _find(self.hopeless, request) is not None

    def remove(self, request: Request) -> None:
        """Take ``request`` out of the queue.

        Raises:
            InvariantError: It does not wait here.
        """
        if self.feasible and self.feasible[0][2] is request:
            del self.feasible[0]  # a launch takes the head of its queue, row by row
            return
        place = _find(self.feasible, request)
        if place is None:
            self._take(self.hopeless, request)
        else:
            del self.feasible[place]

    def _take(self, rank: list[Entry], request: Request) -> None:
        place = _find(rank, request)
        if place is None:
            raise InvariantError(
                f"request {request.seq} does not wait for {self.model.name} {self.stage.name}",
            )
        del rank[place]


def _find(rank: list[Entry], request: Request) -> int | None:
    place = bisect_left(rank, (request.order, request.seq))
    found = place < len(rank) and rank[place][1] == request.seq
    return place if found else None
