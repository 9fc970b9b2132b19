"""The requests of one model that wait for one stage, in two ranks.

Feasible requests stand in (order, seq) order; a request's order is its due, later by one slo per
class of :attr:`~takt.core.request.Request.priority`. A *hopeless* request, one that can no longer
be on time, stands behind all of them, earliest order first, and takes only places that no feasible
request can use; :mod:`takt.core.scheduler` moves requests between the ranks as time passes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import itemgetter

from takt.core.model import Model
from takt.core.request import Request, Stage
from takt.errors import InvariantError
from takt.units import Nanos

__all__ = ["Entry", "Queue"]

_SEQ = itemgetter(1)

Entry = tuple[int, int, Request]
"""(order, seq, request): seq differs between requests, so two requests are never compared."""


class Queue:
    """Requests of one model waiting for one stage."""

    __slots__ = ("feasible", "hopeless", "model", "service", "stage", "steps", "turn")

    def __init__(
        self, model: Model, stage: Stage, service: tuple[Nanos, ...] = (0,), steps: int = 1
    ) -> None:
        self.model = model
        self.stage = stage
        self.service = service
        """Expected time from the start of this stage to the answer, by layout."""
        self.steps = steps
        """Denoise launches of each request, all still to run when this stage starts."""
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

    def head(self, count: int) -> list[Entry]:
        """The first ``count`` in queue order, the feasible before the hopeless."""
        entries = self.feasible[:count]
        if len(entries) < count:
            entries += self.hopeless[: count - len(entries)]
        return entries

    def take_head(self, seqs: tuple[int, ...]) -> list[Entry]:
        """Take the first requests out of the queue; they must be ``seqs``.

        Raises:
            InvariantError: Others stand there.
        """
        count = len(seqs)
        entries = self.head(count)
        if tuple(map(_SEQ, entries)) != seqs:
            raise InvariantError(
                f"requests {seqs} are not the head of {self.model.name} {self.stage.name}"
            )
        num_hopeless = count - len(self.feasible)
        del self.feasible[:count]
        if num_hopeless > 0:
            del self.hopeless[:num_hopeless]
        return entries

    def yield_place(self, request: Request) -> None:
        """Move ``request`` behind all feasible requests."""
        insort(self.hopeless, self._take(self.feasible, request))

    def regain_place(self, request: Request) -> None:
        """Give ``request`` its order among the feasible back."""
        insort(self.feasible, self._take(self.hopeless, request))

    def yields(self, request: Request) -> bool:
        """Whether ``request`` waits here behind the feasible."""
        place = bisect_left(self.hopeless, (request.order, request.seq))
        return place < len(self.hopeless) and self.hopeless[place][2] is request

    def remove(self, request: Request) -> None:
        """Take ``request`` out of the queue.

        Raises:
            InvariantError: It does not wait here.
        """
        self._take(self.hopeless if self.yields(request) else self.feasible, request)

    def _take(self, rank: list[Entry], request: Request) -> Entry:
        place = bisect_left(rank, (request.order, request.seq))
        if place == len(rank) or rank[place][2] is not request:
            raise InvariantError(
                f"request {request.seq} does not wait for {self.model.name} {self.stage.name}",
            )
        return rank.pop(place)
