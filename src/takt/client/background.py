"""Asks for chunks beside a control loop, which never waits and never sees an exception.

A thread sends the newest observation when the queue calls for it, one at a time, and merges the
chunk that comes. When the server is slow the queue runs low, when it is gone the queue runs dry:
:meth:`BackgroundClient.next_action` then returns None and the robot must hold by its own rule.

Start reading at :meth:`BackgroundClient.next_action`.
"""

import time
from collections.abc import Callable, Mapping

from takt.client.answer import ActionArray
from takt.client.backoff import Backoff
from takt.client.closing import Closing
from takt.client.exchange import Exchange, ExchangeStatus
from takt.client.sender import AskingConnection, Sender
from takt.errors import ConfigError
from takt.robot.action_queue import MergeRule, latest_only
from takt.robot.replanning import ReplanningRule
from takt.units import SECOND, Nanos

__all__ = ["BackgroundClient"]


class BackgroundClient(Closing):
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
        rule: ReplanningRule | None = None,
        merge_rule: MergeRule[ActionArray] = latest_only,
        expires_after: Nanos | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        if not 0 < control_hz <= SECOND:
            raise ConfigError(f"control_hz must be positive, got {control_hz}")
        if expires_after is not None and expires_after <= 0:
            raise ConfigError(f"expires_after must be positive, got {expires_after} ns")
        self._exchange = Exchange(
            control_period=round(SECOND / control_hz),
            rule=rule,
            merge_rule=merge_rule,
            expires_after=expires_after,
            clock=clock,
        )
        self._sender = Sender(self._exchange, connect, backoff or Backoff())

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
        return self._sender.is_connected

    def status(self) -> ExchangeStatus:
        """Queue, counts and failures at this instant."""
        return self._exchange.status()

    def close(self) -> None:
        """End the connection and the sender. Queued actions can still be taken."""
        self._sender.close()

    def __enter__(self) -> "BackgroundClient":
        self.start()
        return self
