"""Asks for chunks beside a control loop, which never waits and never sees an exception.

A thread sends the newest observation when the queue calls for it, one at a time, and merges the
chunk that comes. When the server is slow the queue runs low, when it is gone the queue runs dry:
:meth:`BackgroundClient.next_action` then returns None and the robot must hold by its own rule.

Start reading at :meth:`BackgroundClient.next_action`.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol

from takt.client.answer import ActionArray, Answer
from takt.client.backoff import Backoff
from takt.client.errors import ConnectionLostError
from takt.client.exchange import Exchange, ExchangeStatus, Request
from takt.errors import ConfigError, RefusedError, TaktError, UsageError
from takt.robot.action_queue import MergeRule, latest_only
from takt.robot.replanning import ThresholdRule
from takt.units import SECOND, Nanos, to_seconds

__all__ = ["AskingConnection", "BackgroundClient"]

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


class BackgroundClient:
    """A robot's queue of actions that refills itself.

    The calls of the control loop (:meth:`observe`, :meth:`next_action`) neither wait for the
    network nor raise. Failures are counted (:meth:`status`); after each the sender waits
    (:class:`Backoff`) and tries again, for ever.

    Args:
        connect: Opens a connection; called again after every loss.
            ``functools.partial(takt.client.connect, "server:8000")``, for example.
        control_hz: Control ticks per second.
        rule: When to ask; half of a chunk left by default.
        merge_rule: How a chunk joins the actions still queued.
        expires_after: Age of an observation from which on it is not sent and its answer not
            executed; None: never.
        backoff: How long to wait after failures.
        clock: Monotonic, in nanoseconds.

    Raises:
        ConfigError: ``control_hz`` is not positive, or ``expires_after`` is not.
    """

    def __init__(
        self,
        connect: Callable[[], AskingConnection],
        *,
        control_hz: float,
        rule: ThresholdRule | None = None,
        merge_rule: MergeRule[ActionArray] = latest_only,
        expires_after: Nanos | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        if not 0 < control_hz <= SECOND:
            raise ConfigError(f"control_hz must be positive, got {control_hz}")
        if expires_after is not None and expires_after <= 0:
            raise ConfigError(f"expires_after must be positive, got {expires_after} ns")
        self._connect = connect
        self._backoff = backoff or Backoff()
        self._exchange = Exchange(
            control_period=round(SECOND / control_hz),
            rule=rule,
            merge_rule=merge_rule,
            expires_after=expires_after,
            clock=clock,
        )
        self._connection: AskingConnection | None = None
        self._handover = threading.Lock()
        self._closing = threading.Event()
        # A daemon: a program that ends without closing must not hang in a connection attempt.
        self._sender = threading.Thread(target=self._send, name="takt-client", daemon=True)

    def start(self) -> None:
        """Start the sender; it connects when the first observation is to be sent."""
        self._sender.start()

    def observe(self, observation: Mapping[str, object]) -> None:
        """Hand over what the robot sees before it executes its next action.

        Call it at every tick, or when :attr:`wants_observation` says so. An older observation
        that was not sent yet is dropped.

        Args:
            observation: By the keys the policy takes. It is kept, not copied: do not write to its
                arrays afterwards.
        """
        self._exchange.observe(observation)

    def next_action(self) -> ActionArray | None:
        """Execute one control tick.

        Returns:
            The action to execute now, shape ``(action_dim,)``, read-only; None when there is
            none, and the robot must hold.
        """
        return self._exchange.next_action()

    @property
    def wants_observation(self) -> bool:
        """An observation handed over now would be sent at once."""
        return self._exchange.wants_observation

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection. Its loss is noticed when something is sent."""
        return self._connection is not None

    def status(self) -> ExchangeStatus:
        """Queue, counts and failures at this instant."""
        return self._exchange.status()

    def close(self) -> None:
        """End the connection and the sender. Queued actions can still be taken."""
        self._closing.set()
        self._exchange.close()
        with self._handover:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._sender.is_alive():
            self._sender.join(_JOIN_TIMEOUT_S)

    def __enter__(self) -> "BackgroundClient":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self) -> None:
        while (request := self._exchange.wait_for_request()) is not None:
            wait = self._ask(request)
            if wait:
                self._closing.wait(to_seconds(wait))

    def _ask(self, request: Request) -> Nanos:
        """Ask once; returns how long to pause."""
        try:
            answer = self._connected().infer(
                request.observation, due_in=request.due_in, expires_in=request.expires_in
            )
        except Exception as error:  # noqa: BLE001 - a dead sender would starve the robot for ever
            return self._failed(request, error)
        self._backoff.succeeded()
        self._exchange.answered(request, answer)
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

    def _failed(self, request: Request, error: Exception) -> Nanos:
        # A refusal answers this very observation, and one that cannot be sent never can be.
        # Whatever else went wrong says nothing of it, and may go better on a new connection.
        is_final = isinstance(error, (RefusedError, UsageError))
        if not is_final:
            self._drop_connection()
        if not isinstance(error, TaktError):
            log.error("sending an observation failed", exc_info=error)
        code = getattr(error, "code", type(error).__name__)
        self._exchange.failed(request, code, str(error), send_again=not is_final)
        return self._backoff.after_failure()

    def _drop_connection(self) -> None:
        with self._handover:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
