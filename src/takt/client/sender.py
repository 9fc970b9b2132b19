"""Asks a server, again and again, from a thread of its own, and never gives up.

A :class:`Sender` takes what is to be asked from a :class:`Desk` and brings back answers and
failures. After a failure it waits (:class:`~takt.client.backoff.Backoff`) and tries again, on a new
connection where the old one is lost, for ever.

Start reading at :class:`Desk`. :class:`~takt.client.exchange.Exchange` is one for a loop that
belongs to somebody else, :class:`~takt.client.mailbox.Mailbox` that of
:class:`~takt.client.loop.ControlLoop`.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from takt.client.answer import Answer
from takt.client.backoff import Backoff
from takt.client.errors import ConnectionLostError
from takt.client.leftover import Leftover
from takt.errors import RefusedError, TaktError, UsageError
from takt.units import Nanos, to_seconds

__all__ = ["Askable", "AskingConnection", "ContinuingConnection", "Desk", "Sender"]

log = logging.getLogger(__name__)

_JOIN_TIMEOUT_S = 2.0


class AskingConnection(Protocol):
    """What is used of a :class:`~takt.client.connection.Connection`."""

    def infer(
        self,
        observation: Mapping[str, object],
        *,
        due_in: Nanos | None = None,
        expires_in: Nanos | None = None,
    ) -> Answer:
        """Ask and wait."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


@runtime_checkable
class ContinuingConnection(Protocol):
    """What is used of a :class:`~takt.client.connection.Connection` beyond that, where the model
    may continue what a robot is executing. One without it is never offered anything.
    """

    @property
    def takes_leftovers(self) -> bool:
        """Whether the model continues what a robot is executing."""
        ...

    @property
    def model_digest(self) -> str | None:
        """Digest of the model's weights; None: nobody said."""
        ...

    def infer(
        self,
        observation: Mapping[str, object],
        *,
        due_in: Nanos | None = None,
        expires_in: Nanos | None = None,
        leftover: Leftover | None = None,
    ) -> Answer:
        """Ask and wait."""
        ...


class Askable(Protocol):
    """An observation that is to be sent now."""

    @property
    def observation(self) -> Mapping[str, object]:
        """By the keys the policy takes."""
        ...

    @property
    def due_in(self) -> Nanos:
        """Time until the robot runs out of actions, less the network's; may be negative."""
        ...

    @property
    def expires_in(self) -> Nanos | None:
        """Time until an answer is worthless; None: never."""
        ...

    @property
    def leftover(self) -> Leftover | None:
        """What the robot is still executing, for the model that made it; None: nothing."""
        ...


R = TypeVar("R", bound=Askable)


class Desk(Protocol[R]):
    """Where a sender gets its work and leaves what came of it."""

    def wait_for_request(self) -> R | None:
        """Wait until an observation is to be sent; None once closed."""
        ...

    def answered(self, request: R, answer: Answer) -> None:
        """A chunk came."""
        ...

    def failed(self, request: R, code: str, why: str, *, send_again: bool) -> None:
        """No chunk will come.

        Args:
            request: What was asked.
            code: Why, for programs.
            why: The same in a sentence.
            send_again: The observation was not at fault.
        """
        ...

    def close(self) -> None:
        """Nothing more is to be sent; whoever waits stops waiting."""
        ...


class Sender:
    """The thread that asks.

    Args:
        desk: Where the work is.
        connect: Opens a connection; called again after every loss.
        backoff: How long to wait after failures.
    """

    def __init__(
        self,
        desk: Desk[Any],
        connect: Callable[[], AskingConnection],
        backoff: Backoff,
    ) -> None:
        self._desk = desk
        self._connect = connect
        self._backoff = backoff
        self._connection: AskingConnection | None = None
        self._handover = threading.Lock()
        self._closing = threading.Event()
        # A daemon: a program that ends without closing must not hang in a connection attempt.
        self._thread = threading.Thread(target=self._run, name="takt-client", daemon=True)

    def start(self) -> None:
        """Start; the connection is opened when the first observation is to be sent."""
        self._thread.start()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection. Its loss is noticed when something is sent."""
        return self._connection is not None

    def close(self) -> None:
        """End the connection and the thread."""
        self._closing.set()
        self._desk.close()
        self._drop_connection()
        if self._thread.is_alive():
            self._thread.join(_JOIN_TIMEOUT_S)

    def _run(self) -> None:
        while (request := self._desk.wait_for_request()) is not None:
            wait = self._ask(request)
            if wait:
                self._closing.wait(to_seconds(wait))

    def _ask(self, request: Askable) -> Nanos:
        """Ask once; returns how long to pause."""
        try:
            answer = _infer(self._connected(), request)
        # A dead sender would starve the robot for ever, and what ends threads (a panic of native
        # code, a SystemExit) means nothing to the program in a thread of ours.
        except BaseException as error:  # noqa: BLE001
            return self._failed(request, error)
        self._backoff.succeeded()
        self._desk.answered(request, answer)
        return 0

    def _connected(self) -> AskingConnection:
        connection = self._connection
        if connection is not None:
            return connection
        connection = self._connect()
        with self._handover:
            if not self._closing.is_set():
                self._connection = connection
                return connection
        connection.close()
        raise ConnectionLostError("this client was closed", code="closed")

    def _failed(self, request: Askable, error: BaseException) -> Nanos:
        # A refusal answers this very observation, and one that cannot be sent never can be.
        # Whatever else went wrong says nothing of it, and may go better on a new connection.
        is_final = isinstance(error, (RefusedError, UsageError))
        if not is_final:
            self._drop_connection()
        if not isinstance(error, TaktError):
            log.error("sending an observation failed", exc_info=error)
        code = getattr(error, "code", type(error).__name__)
        self._desk.failed(request, code, str(error), send_again=not is_final)
        return self._backoff.after_failure()

    def _drop_connection(self) -> None:
        with self._handover:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _infer(connection: AskingConnection, request: Askable) -> Answer:
    """Ask, with the leftover where the model at the other end may have it."""
    leftover = request.leftover
    continuing = None if leftover is None else _continuing(connection, leftover)
    if continuing is None:
        return connection.infer(
            request.observation, due_in=request.due_in, expires_in=request.expires_in
        )
    return continuing.infer(
        request.observation,
        due_in=request.due_in,
        expires_in=request.expires_in,
        leftover=leftover,
    )


def _continuing(connection: object, leftover: Leftover) -> ContinuingConnection | None:
    """The connection, if its model takes leftovers and made this one.

    The model is that of the greeting: one that was loaded under its name since then may take none,
    and refuse the observation for it.
    """
    if not isinstance(connection, ContinuingConnection) or not connection.takes_leftovers:
        return None
    return connection if connection.model_digest == leftover.model_digest else None
