"""Where a control loop leaves its newest observation and finds what became of the last one.

Neither side waits for the other: both hold one lock for as long as it takes to move a reference.
Everything that takes thought, such as merging a chunk, is done by the control loop in its own
time. The sender waits for work, and for nothing else.

Start reading at :meth:`Mailbox.post`.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from takt.client.answer import Answer
from takt.client.leftover import Leftover
from takt.units import Nanos

__all__ = ["Asked", "Mailbox", "Outcome", "Posted"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Posted:
    """An observation that may be sent. All instants are on the loop's monotonic clock."""

    observation: Mapping[str, object]
    chunk_id: int
    """Number of the chunk that will answer it."""
    first_timestep: int
    """Timestep its chunk begins at."""
    observed: Nanos
    """When it was made; with images, the older of both."""
    due: Nanos
    """When an answer must leave the server so that the robot does not run dry."""
    expires: Nanos
    """When an answer is worthless."""
    leftover: Leftover | None = None
    """What is left of the queue, for a model that continues it; None: its chunk starts free."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """An observation that is sent now; see :class:`~takt.client.sender.Askable`."""

    posted: Posted
    sent: Nanos

    @property
    def observation(self) -> Mapping[str, object]:
        """By the keys the policy takes."""
        return self.posted.observation

    @property
    def due_in(self) -> Nanos:
        """Time until ``due``; negative for a robot that has run dry already."""
        return self.posted.due - self.sent

    @property
    def expires_in(self) -> Nanos:
        """Time until an answer is worthless."""
        return self.posted.expires - self.sent

    @property
    def leftover(self) -> Leftover | None:
        """What is left of the queue; None: nothing is offered."""
        return self.posted.leftover


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What became of an observation that was sent, or that grew too old to be sent."""

    asked: Asked
    ended: Nanos
    answer: Answer | None = None
    code: str = ""
    """Why there is no answer, for programs."""
    why: str = ""
    """The same in a sentence."""


class Mailbox:
    """One robot's. Thread-safe; see :class:`~takt.client.sender.Desk` for the sender's side.

    Args:
        clock: Monotonic, in nanoseconds.
    """

    def __init__(self, clock: Callable[[], Nanos]) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._posted: Posted | None = None
        self._outcomes: list[Outcome] = []
        self._closed = False

    def now(self) -> Nanos:
        """This instant, on the clock of everything that is left here."""
        return self._clock()

    # The control loop's side.

    @property
    def has_unsent(self) -> bool:
        """An observation was left that was not sent yet."""
        return self._posted is not None

    def post(self, posted: Posted) -> None:
        """Leave an observation to be sent."""
        with self._changed:
            self._posted = posted
            self._changed.notify_all()

    def renew(self, posted: Posted) -> None:
        """Leave a newer observation in place of one that was not sent yet, if that is still so."""
        with self._changed:
            if self._posted is not None:
                self._posted = posted

    def collect(self) -> list[Outcome]:
        """What became of observations since the last call, in order."""
        with self._changed:
            outcomes, self._outcomes = self._outcomes, []
            return outcomes

    # The sender's side.

    def wait_for_request(self) -> Asked | None:
        """See :meth:`takt.client.sender.Desk.wait_for_request`."""
        with self._changed:
            while not self._closed:
                asked = self._take()
                if asked is not None:
                    return asked
                self._changed.wait()
        return None

    def take_request(self) -> Asked | None:
        """The observation to send now, or None. It is then under way until :meth:`answered` or
        :meth:`failed`.
        """
        with self._changed:
            return None if self._closed else self._take()

    def answered(self, request: Asked, answer: Answer) -> None:
        """See :meth:`takt.client.sender.Desk.answered`."""
        self._end(Outcome(asked=request, ended=self._clock(), answer=answer))

    def failed(self, request: Asked, code: str, why: str, *, send_again: bool) -> None:
        """See :meth:`takt.client.sender.Desk.failed`."""
        # The loop posts a newer observation at its next tick, so none is sent again.
        del send_again
        self._end(Outcome(asked=request, ended=self._clock(), code=code, why=why))

    def close(self) -> None:
        """See :meth:`takt.client.sender.Desk.close`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _take(self) -> Asked | None:
        posted, self._posted = self._posted, None
        if posted is None:
            return None
        now = self._clock()
        asked = Asked(posted=posted, sent=now)
        if asked.expires_in <= 0:
            why = "an observation was too old before it could be sent"
            self._outcomes.append(Outcome(asked=asked, ended=now, code="stale", why=why))
            return None
        return asked

    def _end(self, outcome: Outcome) -> None:
        with self._changed:
            self._outcomes.append(outcome)
