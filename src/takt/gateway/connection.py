"""What a door holds: a connection, and on it a session per robot.

Start reading at :meth:`GatewaySession.infer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from takt.gateway.request import Answer, GatewayRequest, Wanted
from takt.schema.observation import Observation
from takt.schema.row import Chunking, Executing
from takt.session.session import Session
from takt.session.timing import Declared
from takt.units import Nanos

__all__ = ["GatewayConnection", "GatewaySession", "SessionHost"]


class SessionHost(Protocol):
    """Keeps the sessions; the gateway does."""

    def open_session(self, number: int, robot: str | None) -> Session[GatewayRequest]:
        """The session of a robot on a connection."""
        ...

    def close_connection(self, number: int) -> None:
        """Cancel everything of a connection."""
        ...

    def accept(
        self, session: Session[GatewayRequest], observation: Observation, wanted: Wanted
    ) -> asyncio.Future[Answer]:
        """Take a request in."""
        ...


class GatewayConnection:
    """One connection of a door; make it with :meth:`takt.gateway.gateway.Gateway.connect`."""

    def __init__(
        self, host: SessionHost, number: int, on_displaced: Callable[[str | None], None]
    ) -> None:
        self.number = number
        """Number of the connection, never used for two."""
        self.on_displaced = on_displaced
        self._host = host

    def session(self, robot: str | None = None) -> GatewaySession:
        """The session of a robot on this connection, opened if need be.

        Raises:
            RefusedError: The robot is connected elsewhere and second connections are refused, or
                there are too many sessions.
            WireError: The id is empty, too long or not printable.
        """
        session = self._host.open_session(self.number, robot)
        return GatewaySession(self._host, session)

    def close(self) -> None:
        """Cancel every request of this connection and end its sessions."""
        self._host.close_connection(self.number)


class GatewaySession:
    """One robot's requests; make it with :meth:`GatewayConnection.session`."""

    __slots__ = ("_host", "_session")

    def __init__(self, host: SessionHost, session: Session[GatewayRequest]) -> None:
        self._host = host
        self._session = session

    @property
    def name(self) -> str:
        """The robot's id, or a name made from the connection."""
        return self._session.name

    @property
    def allowance(self) -> Nanos:
        """What this session's network takes, both ways."""
        return self._session.allowance.value

    def report_network(self, measured: Nanos) -> None:
        """The client measured its network.

        Raises:
            ObservationError: The report lies outside the range believed; the old value holds.
        """
        self._session.allowance.report(measured)

    def infer(
        self,
        model: str,
        observation: Observation,
        *,
        arrival: Nanos,
        declared: Declared | None = None,
        inferred_due: Nanos | None = None,
        run: str | None = None,
        sequence: int | None = None,
        horizon: int | None = None,
        chunking: Chunking | None = None,
        executing: Executing | None = None,
        is_lent: bool = False,
    ) -> asyncio.Future[Answer]:
        """Ask for an action chunk.

        Args:
            model: Which model.
            observation: What the robot saw; its arrays must not change until the answer, unless
                it is lent.
            arrival: When the last byte of the request was read.
            declared: What the robot said about its own time.
            inferred_due: The door's estimate of when the robot's queue runs dry.
            run: Name of the robot's run, part of the key of the noise; None: the session's name.
            sequence: Number of the observation in that run; None: counted by the session.
            horizon: Steps wanted; None: what the policy declares.
            chunking: The chunk being executed.
            executing: The same in the robot's words.
            is_lent: The observation's arrays are good during this call only. What is read later,
                because it has to wait or has images to prepare, is copied.

        Returns:
            A future with the answer. It fails with a :class:`~takt.errors.RefusedError`; it is
            cancelled when the connection closes. Cancelling it cancels the request.

        Raises:
            RefusedError: The request is refused at once: ``unknown_model``, ``draining``,
                ``busy``, ``worker_lost``, ``failed`` or ``cancelled``.
        """
        wanted = Wanted(
            model=model,
            arrival=arrival,
            declared=declared if declared is not None else Declared(),
            inferred_due=inferred_due,
            run=run,
            sequence=sequence,
            horizon=horizon,
            chunking=chunking,
            executing=executing,
            is_lent=is_lent,
        )
        return self._host.accept(self._session, observation, wanted)
