"""One robot's conversation: a waiting place, what is in flight, and the noise counter.

An observation that is offered takes the waiting place; if an older one still waits there, it is
superseded and handed back, because its client must be answered too. Each observation therefore
leaves a session exactly once: superseded, refused, settled, or handed back when the session
closes.

Start reading at :meth:`Session.offer`.
"""

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from takt.errors import ConfigError, InvariantError, RefusedError
from takt.session.timing import NetworkAllowance, Timing

__all__ = ["Offered", "Pending", "Session", "SessionRules"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRules:
    """How the sessions of a door treat their observations."""

    supersede: bool = True
    """Whether a newer observation replaces one that waits. Off for benchmarks that count every
    request."""
    max_in_flight: int = 3
    """Observations of one session that may be with preprocessing or a worker at once. Three are
    one that is computed, one that waits in the worker, and the newer one on its way there to
    supersede it. With one, the newest would sit out the whole inference of the one before."""
    max_waiting: int = 64
    """Waiting places without superseding; with it there is always one."""

    def __post_init__(self) -> None:
        for name in ("max_in_flight", "max_waiting"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending(Generic[T]):
    """One observation on its way through a session."""

    item: T
    """What the door offered."""
    sequence: int
    """Counts the observations of the session; with the session's name it seeds the noise."""
    timing: Timing
    """Its instants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered(Generic[T]):
    """What offering an observation did."""

    sequence: int
    """Number the observation got."""
    superseded: Pending[T] | None
    """An older observation that must be answered ``superseded`` now."""


class Session(Generic[T]):
    """A connection with its declared robot.

    Args:
        number: Unique among all sessions of the table, never used again.
        name: The declared robot or session id, or a name made from the connection.
        rules: How observations are treated.
        allowance: What the session's network takes.
    """

    def __init__(
        self, *, number: int, name: str, rules: SessionRules, allowance: NetworkAllowance
    ) -> None:
        self.number = number
        self.name = name
        self.allowance = allowance
        self._rules = rules
        self._next_sequence = 0
        self._waiting: deque[Pending[T]] = deque()
        self._in_flight: dict[int, Pending[T]] = {}
        self.is_closed = False
        """Whether it has ended: every observation is refused from here on."""

    @property
    def num_in_flight(self) -> int:
        """Observations with preprocessing or a worker."""
        return len(self._in_flight)

    @property
    def num_waiting(self) -> int:
        """Observations that wait for a slot; at most one when newer ones supersede."""
        return len(self._waiting)

    @property
    def head(self) -> Pending[T] | None:
        """What :meth:`take` would return."""
        if not self._waiting or len(self._in_flight) >= self._rules.max_in_flight:
            return None
        return self._waiting[0]

    def offer(self, item: T, *, timing: Timing) -> Offered[T]:
        """A new observation arrived.

        Returns:
            Its number, and the observation it supersedes, which must be answered.

        Raises:
            RefusedError: Superseding is off and every waiting place is taken (``busy``), or the
                session is closed (``cancelled``).
        """
        if self.is_closed:
            raise RefusedError(f"session {self.name!r} is closed", code="cancelled")
        superseded = None
        if self._rules.supersede and self._waiting:
            superseded = self._waiting.popleft()
        elif len(self._waiting) >= self._rules.max_waiting:
            raise RefusedError(
                f"session {self.name!r} has {len(self._waiting)} observations waiting; "
                "wait for an answer before sending more",
                code="busy",
            )
        sequence = self._next_sequence
        self._next_sequence += 1
        self._waiting.append(Pending(item=item, sequence=sequence, timing=timing))
        return Offered(sequence=sequence, superseded=superseded)

    def take(self) -> Pending[T] | None:
        """Move the waiting observation in flight; None if none waits or enough are in flight."""
        head = self.head
        if head is not None:
            self._waiting.popleft()
            self._in_flight[head.sequence] = head
        return head

    def settle(self, sequence: int) -> Pending[T] | None:
        """An observation in flight has its answer, whatever it is.

        Returns:
            The observation, to be answered now; None if the session closed meanwhile, so that
            nobody waits for the answer.

        Raises:
            InvariantError: The observation is not in flight: it would be answered twice.
        """
        settled = self._in_flight.pop(sequence, None)
        if settled is None and not self.is_closed:
            raise InvariantError(f"session {self.name!r}: {sequence} is not in flight")
        return settled

    def close(self) -> list[Pending[T]]:
        """End the session.

        Returns:
            Every observation without an answer, oldest first; those in flight must be cancelled.
        """
        self.is_closed = True
        unanswered = [*self._in_flight.values(), *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        return unanswered
