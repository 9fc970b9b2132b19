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

    def head(self, count: int) -> list[Entry]:
        """The first ``count`` in queue order, the feasible before the hopeless."""
        entries = self.feasible[:count]
        if len(entries) < count:
            entries += self.hopeless[: count - len(entries)]
        return entries

    def take_head(self, seqs: tuple[int, ...]) -> list[Request]:
        """Take the first requests out of the queue; they must be ``seqs``.

        Raises:
            InvariantError: Others stand there.
        """
        entries = self.head(len(seqs))
        if tuple(map(_SEQ, entries)) != seqs:
            raise InvariantError(
                f"requests {seqs} are not the head of {self.model.name} {self.stage.name}"
            )
        num_hopeless = len(seqs) - len(self.feasible)
        del self.feasible[: len(seqs)]
        if num_hopeless > 0:
            del self.hopeless[:num_hopeless]
        return [entry[2] for entry in entries]

    def yield_place(self, request: Request) -> None:
        """Move ``request`` behind all feasible requests."""
        insort(self.hopeless, self._take(self.feasible, request))

    def regain_place(self, request: Request) -> None:
        """Give ``request`` its order among the feasible back."""
        insort(self.feasible, self._take(self.hopeless, request))

    def yields(self, request: Request) -> bool:
        """Whether ``request`` waits here behind the feasible."""
        return _find(self.hopeless, request) is not None

    def remove(self, request: Request) -> None:
        """Take ``request`` out of the queue.

        Raises:
            InvariantError: It does not wait here.
        """
        place = _find(self.feasible, request)
        if place is None:
            self._take(self.hopeless, request)
        else:
            del self.feasible[place]

    def _take(self, rank: list[Entry], request: Request) -> Entry:
        place = _find(rank, request)
        if place is None:
            raise InvariantError(
                f"request {request.seq} does not wait for {self.model.name} {self.stage.name}",
            )
        return rank.pop(place)


def _find(rank: list[Entry], request: Request) -> int | None:
    if rank and rank[0][2] is request:
        return 0  # mostly it is the head that becomes hopeless
    place = bisect_left(rank, (request.order, request.seq))
    found = place < len(rank) and rank[place][1] == request.seq
    return place if found else None
