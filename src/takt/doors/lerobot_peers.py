"""Connections of the LeRobot door. gRPC tells of calls, not of connections; this makes them up.

A stock client always has a poll open, so a connection whose poll was cut, or that has been silent
for some seconds, is gone. Its session may be gone on with from another connection at once when the
poll was cut; it is closed when the silence is long enough.

Start reading at :class:`Peer`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator
from contextlib import contextmanager

from takt.doors.lerobot_records import SessionRecords
from takt.doors.lerobot_robot import LerobotRobot
from takt.doors.limits import DoorLimits, RateLimit
from takt.errors import RefusedError
from takt.units import SECOND, Nanos, to_seconds
from takt.wire.lerobot_messages import Fragment, ObservationAssembler, TransferState

__all__ = ["Peer", "Peers"]

_SILENCE: Nanos = 10 * SECOND
"""A connection without a call for so long is gone."""
_OVERLAP_S = 0.2
"""A poll may begin while the one before it is still ending, for so long."""
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
_STRANGER_S = _LONGEST_PAUSE_S + _OVERLAP_S + 0.1
"""How long the first chunk waits for a second client to show itself, which may be in the longest
pause and then in the overlap."""

_SHARED = (
    "two robot clients share this connection, so their actions could be mixed up; run each robot"
    " in a process of its own"
)


class Peer:
    """One connection.

    Args:
        name: gRPC's name of it.
        address: Where it comes from.
        rate: Counts its calls.
        upload: Counts the bytes of its observations.
        records: Remembers its session.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(
        self,
        name: str,
        address: str,
        *,
        rate: RateLimit,
        upload: RateLimit,
        records: SessionRecords,
        clock: Callable[[], Nanos],
    ) -> None:
        self.name = name
        self.address = address
        self.rate = rate
        self.upload = upload
        self.robot: LerobotRobot | None = None
        """Its session, after a handshake or an observation that could be gone on with."""
        self.record: str | None = None
        """Key of the session's record."""
        self.num_handshakes = 0
        """Sessions begun anew; tells whether what took long to arrive is of the one before."""
        self.has_greeted = False
        """Whether a handshake has begun, so that nothing is to be gone on with."""
        self._refusal: tuple[str, str] | None = None
        """Why its observations are refused, and the code of it; its polls are told, too. Words and
        no error: one that is raised again and again keeps every frame it has passed."""
        self.num_calls = 0
        self.num_uploads = 0
        self.last_seen = clock()
        self._records = records
        self._clock = clock
        self._news = asyncio.Event()
        self._poll_free = asyncio.Event()
        self._poll_free.set()
        self._has_polled = False
        self._has_stranger = False
        self._num_failures = 0

    # Sessions

    def begin_anew(self) -> None:
        """A handshake has begun: the session of before is over for good."""
        # Who has polled before may be another client, between two polls even, and would get this
        # robot's actions.
        self._has_stranger = self._has_polled
        self.num_handshakes += 1
        self.has_greeted = True
        self._refusal = None
        self._num_failures = 0
        if self.record is not None:
            self._records.forget(self.record)
        self._leave()

    def open(self, robot: LerobotRobot, record: str) -> None:
        """A session has begun."""
        self.robot, self.record = robot, record
        self._refusal = None
        self._news.set()

    def close(self) -> None:
        """The connection is gone; its robot may come back on another."""
        if self.record is not None:
            self._records.end(self.record, self._clock())
        self._leave()

    def let_go(self) -> None:
        """End a poll that waits for an observation."""
        self._news.set()
        if self.robot is not None:
            self.robot.let_go()

    def _leave(self) -> None:
        robot, self.robot, self.record = self.robot, None, None
        if robot is not None:
            robot.close()
        self._news.set()

    # Polls

    async def take_poll(self) -> None:
        """Begin to poll, when the poll before has ended.

        Raises:
            RefusedError: It has not: two clients share the connection (``shared``).
        """
        if not self._poll_free.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._poll_free.wait(), _OVERLAP_S)
        if not self._poll_free.is_set():
            self.refuse(RefusedError(_SHARED, code="shared"))
            self._leave()
            self.check()
        self._poll_free.clear()
        self._has_polled = True

    def leave_poll(self) -> None:
        """The poll has ended."""
        self._poll_free.set()

    async def wait_for_robot(self, patience: Nanos) -> LerobotRobot | None:
        """The session, when there is one; None if there is none for so long.

        Raises:
            RefusedError: Its observations are refused.
        """
        if self._refusal is None and self.robot is None:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), to_seconds(patience))
        self.check()
        return self.robot

    async def look_for_stranger(self) -> None:
        """Give a second client time to show itself before the first chunk goes out."""
        if self._has_stranger:
            handshakes = self.num_handshakes
            await asyncio.sleep(_STRANGER_S)
            self._has_stranger = self.num_handshakes != handshakes

    # Errors

    @property
    def is_shared(self) -> bool:
        """Whether two clients have been seen on it."""
        return self._refusal is not None and self._refusal[1] == "shared"

    def refuse(self, error: RefusedError) -> None:
        """Say the same to its polls, until a handshake or a session."""
        self._refusal = str(error), error.code

    def check(self) -> None:
        """Say why its observations are refused, if they are.

        Raises:
            RefusedError: They are.
        """
        if self._refusal is not None:
            raise RefusedError(self._refusal[0], code=self._refusal[1])

    async def slow_down(self) -> None:
        """Wait before the error of a poll is sent: a stock client polls again at once."""
        if self._num_failures:
            longest = _FIRST_PAUSE_S * 2.0 ** min(self._num_failures, 8)
            await asyncio.sleep(min(_LONGEST_PAUSE_S, longest))
        self._num_failures += 1

    def went_well(self) -> None:
        """A chunk went out."""
        self._num_failures = 0


class Peers:
    """The connections of a door.

    Args:
        limits: How many there may be, and what each may do.
        records: Remembers their sessions.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(
        self, limits: DoorLimits, records: SessionRecords, clock: Callable[[], Nanos]
    ) -> None:
        self._limits = limits
        self._records = records
        self._clock = clock
        self._peers: dict[str, Peer] = {}
        self.uploading_bytes = 0
        """Bytes of observations that have not arrived as a whole."""

    def __len__(self) -> int:
        return len(self._peers)

    def find(self, name: str) -> Peer | None:
        """The connection of this name, if it is known."""
        return self._peers.get(name)

    def add(self, name: str, address: str) -> Peer:
        """A new connection.

        Raises:
            RefusedError: There are too many (``busy``).
        """
        if len(self._peers) >= self._limits.max_connections:
            self.sweep()
        if len(self._peers) >= self._limits.max_connections:
            raise RefusedError(
                f"{self._limits.max_connections} connections are open, the limit", code="busy"
            )
        peer = self._peers[name] = Peer(
            name,
            address,
            rate=self._limits.call_rate(self._clock()),
            upload=self._limits.upload_rate(self._clock()),
            records=self._records,
            clock=self._clock,
        )
        return peer

    @contextmanager
    def calling(self, peer: Peer) -> Generator[None]:
        """While a call of the connection is open.

        Raises:
            RefusedError: It has too many open (``busy``).
        """
        if peer.num_calls >= self._limits.max_in_flight:
            raise RefusedError(
                f"{peer.num_calls} calls of this connection are open, the limit", code="busy"
            )
        peer.num_calls += 1
        if peer.record is not None:
            self._records.use(peer.record)
        try:
            yield
        except asyncio.CancelledError:
            # The robot has cut its call: it may be on its way to another connection.
            if peer.record is not None and peer.num_calls == 1:
                self._records.end(peer.record, self._clock())
            raise
        finally:
            peer.num_calls -= 1
            peer.last_seen = self._clock()

    @contextmanager
    def uploading(self, peer: Peer, joining: ObservationAssembler, *, most: int) -> Generator[None]:
        """While an observation arrives.

        Raises:
            RefusedError: Too many of the connection are arriving (``busy``).
        """
        if peer.num_uploads >= most:
            raise RefusedError(
                f"{peer.num_uploads} observations of this connection are arriving, the limit",
                code="busy",
            )
        peer.num_uploads += 1
        try:
            yield
        finally:
            peer.num_uploads -= 1
            self.uploading_bytes -= joining.buffered_bytes

    def join(
        self, joining: ObservationAssembler, state: TransferState, piece: Fragment
    ) -> Fragment | None:
        """Add a piece to an observation that arrives; the observation, when it was the last.

        Raises:
            RefusedError: The observations that arrive hold too much together (``busy``), or the
                piece is refused.
        """
        most = self._limits.max_uploading_bytes
        if self.uploading_bytes + len(piece) > most:
            raise RefusedError(
                f"observations that are arriving hold {most} bytes together, the limit", code="busy"
            )
        before = joining.buffered_bytes
        try:
            return joining.add(state, piece)
        finally:
            self.uploading_bytes += joining.buffered_bytes - before

    def sweep(self) -> None:
        """Let go of connections that are gone."""
        now = self._clock()
        gone = [
            peer
            for peer in self._peers.values()
            if not peer.num_calls and now - peer.last_seen > _SILENCE
        ]
        for peer in gone:
            del self._peers[peer.name]
            peer.close()

    def let_go(self) -> None:
        """End every poll that waits for an observation."""
        for peer in self._peers.values():
            peer.let_go()

    def close(self) -> None:
        """Let go of every connection."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
