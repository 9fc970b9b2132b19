"""All sessions of a gateway: opening, taking over, closing, and whose turn it is.

A session is a connection together with the robot it declared. Tokens and IP addresses identify
nobody: a lab's robots share one token behind one address. One connection may carry several robots
(a simulator that drives many); each has a session of its own.

A second connection that declares a robot which is already here takes over or is refused, as
configured. Taking over suits robots that reconnect after a lost cable, before the server has
noticed; refusing suits sites where two controllers of one robot are a fault.

Start reading at :meth:`SessionTable.open`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from takt.errors import RefusedError, UsageError, WireError
from takt.session.session import Pending, Session, SessionRules
from takt.session.timing import NetworkAllowance
from takt.units import SECOND, Nanos

__all__ = ["Closed", "Opened", "SecondConnection", "SessionTable"]

T = TypeVar("T")
_MAX_NAME_LENGTH = 128


class SecondConnection(Enum):
    """What happens to a connection that declares a robot which has a session already."""

    TAKE_OVER = "take_over"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed(Generic[T]):
    """A session that has ended."""

    session: Session[T]
    """The session; it accepts nothing any more."""
    connection: int
    """The connection it was on."""
    unanswered: tuple[Pending[T], ...]
    """Its observations without an answer, to be cancelled wherever they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(Generic[T]):
    """A session that has begun."""

    session: Session[T]
    """The new session."""
    displaced: Closed[T] | None
    """The robot's older session, if this one took over; its connection must be told."""


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    connection: int
    robot_id: str | None
    session: Session[T]


class SessionTable(Generic[T]):
    """The sessions of one gateway.

    Args:
        rules: How observations are treated.
        second_connection: Who wins when a robot connects twice.
        allowance: Network allowance of a client that does not measure.
        max_allowance: Largest measured allowance believed.
        max_sessions: Most sessions at once.
        max_per_connection: Most sessions of one connection, so that a client which makes up robots
            leaves places for everybody else's.
    """

    def __init__(
        self,
        *,
        rules: SessionRules | None = None,
        second_connection: SecondConnection = SecondConnection.TAKE_OVER,
        allowance: Nanos = 0,
        max_allowance: Nanos = SECOND,
        max_sessions: int = 4096,
        max_per_connection: int = 256,
    ) -> None:
        self._rules = rules if rules is not None else SessionRules()
        self._second_connection = second_connection
        self._allowance = allowance
        self._max_allowance = max_allowance
        self._max_sessions = max_sessions
        self._max_per_connection = max_per_connection
        self._next_number = 0
        self._entries: dict[tuple[int, str | None], _Entry[T]] = {}
        self._by_robot: dict[str, _Entry[T]] = {}
        self._num_on: Counter[int] = Counter()
        """Sessions of each connection that has any."""
        self._make_allowance()  # an impossible allowance is refused at start, not at a robot

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Session[T]]:
        """Sessions in the order in which they were opened."""
        return (entry.session for entry in self._entries.values())

    def find(self, connection: int, robot_id: str | None = None) -> Session[T] | None:
        """The session of a robot on a connection, if it is open."""
        entry = self._entries.get((connection, robot_id))
        return None if entry is None else entry.session

    def open(self, connection: int, robot_id: str | None = None) -> Opened[T]:
        """Begin a session.

        Args:
            connection: Number of the connection, never used for two.
            robot_id: The robot or session id that the client declared; None if it declared none.

        Raises:
            RefusedError: The robot is connected already and second connections are refused, or
                there are too many sessions (``busy``).
            WireError: The id is empty, too long or not printable.
            UsageError: This connection has this session already.
        """
        self._check_openable(connection, robot_id)
        older = None if robot_id is None else self._by_robot.get(robot_id)
        if older is not None and self._second_connection is SecondConnection.REFUSE:
            raise RefusedError(
                f"robot {robot_id!r} is connected already; close the other connection first",
                code="busy",
            )
        displaced = None if older is None else self._close(older)
        session = self._make_session(connection, robot_id)
        entry = _Entry(connection, robot_id, session)
        self._entries[connection, robot_id] = entry
        self._num_on[connection] += 1
        if robot_id is not None:
            self._by_robot[robot_id] = entry
        return Opened(session=session, displaced=displaced)

    def close(self, connection: int) -> list[Closed[T]]:
        """A connection ended: end its sessions.

        Returns:
            What ended, with everything that must be cancelled; empty for a connection without
            a session, for example one whose robot was taken over.
        """
        ended = [entry for entry in self._entries.values() if entry.connection == connection]
        return [self._close(entry) for entry in ended]

    def take(self) -> tuple[Session[T], Pending[T]] | None:
        """Move the most urgent waiting observation in flight: earliest due, then oldest session.

        Call it when a slot is free; None if nothing may go.
        """
        best: tuple[Nanos, int, Session[T]] | None = None
        for session in self:
            head = session.head
            if head is not None and (best is None or (head.timing.due, session.number) < best[:2]):
                best = (head.timing.due, session.number, session)
        if best is None:
            return None
        taken = best[2].take()
        return None if taken is None else (best[2], taken)

    def _check_openable(self, connection: int, robot_id: str | None) -> None:
        if robot_id is not None:
            _check_name(robot_id)
        if (connection, robot_id) in self._entries:
            raise UsageError(f"connection {connection} has a session for robot {robot_id!r}")
        if len(self._entries) >= self._max_sessions:
            raise RefusedError(f"{len(self._entries)} sessions are open, the limit", code="busy")
        if self._num_on[connection] >= self._max_per_connection:
            raise RefusedError(
                f"this connection has sessions of {self._num_on[connection]} robots, the limit;"
                " open another connection for more",
                code="busy",
            )

    def _make_session(self, connection: int, robot_id: str | None) -> Session[T]:
        self._next_number += 1
        return Session(
            number=self._next_number,
            name=robot_id if robot_id is not None else f"connection-{connection}",
            rules=self._rules,
            allowance=self._make_allowance(),
        )

    def _make_allowance(self) -> NetworkAllowance:
        return NetworkAllowance(constant=self._allowance, most=self._max_allowance)

    def _close(self, entry: _Entry[T]) -> Closed[T]:
        del self._entries[entry.connection, entry.robot_id]
        self._num_on[entry.connection] -= 1
        if not self._num_on[entry.connection]:
            del self._num_on[entry.connection]
        if entry.robot_id is not None and self._by_robot.get(entry.robot_id) is entry:
            del self._by_robot[entry.robot_id]
        return Closed(
            session=entry.session,
            connection=entry.connection,
            unanswered=tuple(entry.session.close()),
        )


def _check_name(robot_id: str) -> None:
    if not 0 < len(robot_id) <= _MAX_NAME_LENGTH or not robot_id.isprintable():
        shown = ascii(robot_id[:_MAX_NAME_LENGTH])
        raise WireError(
            f"robot id: expected 1 to {_MAX_NAME_LENGTH} printable characters,"
            f" got {len(robot_id)}: {shown}"
        )
