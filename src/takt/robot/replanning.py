"""Decides when a robot asks for its next action chunk, and how long its actions last.

The rules look at the queue alone, measured in actions left. None of them compares observations: a
robot that stands still in a joint's units, whatever they are, still needs its next chunk, and an
observation sent is an observation wanted.

:class:`Replanner` adds what a rule cannot know: one request is under way at a time, how long the
answers take, and what of that is the network.

Start reading at :class:`ThresholdRule`, then :meth:`Replanner.ask`.
"""

from dataclasses import dataclass, field
from typing import Protocol

from takt.errors import ConfigError, UsageError
from takt.robot.latency import LatencyEstimate
from takt.units import MILLISECOND, Nanos

__all__ = [
    "Ask",
    "BufferRule",
    "LatencyRule",
    "QueueLevel",
    "Replanner",
    "ReplanningRule",
    "ThresholdRule",
    "due_in",
    "time_until_dry",
]


class QueueLevel(Protocol):
    """What a rule may know of a queue; :class:`takt.robot.action_queue.ActionQueue` has it."""

    @property
    def remaining(self) -> int:
        """Actions left to execute."""
        ...

    @property
    def longest_chunk(self) -> int:
        """Length of the longest chunk so far; 0 before the first."""
        ...


class ReplanningRule(Protocol):
    """When to ask. It is looked at between the actions of two ticks."""

    def ticks_until_due(self, queue: QueueLevel, latency: Nanos | None = None) -> int:
        """How many more actions are executed before the rule asks; 0 when it asks now.

        Args:
            queue: The robot's queue.
            latency: Measured time from asking to the answer; None: not known.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRule:
    """Ask when the queue has drained to a share of a chunk: LeRobot's threshold g.

    The rule is looked at between the actions of two ticks. Before the first chunk it always asks.
    """

    threshold: float = 0.5
    """Share of the longest chunk so far, 0..1. 0 asks only when the queue is empty, so the robot
    stands still for every answer; 1 asks at every tick. Higher values hide more latency and cost
    more requests."""

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ConfigError(f"threshold must lie in [0, 1], got {self.threshold}")

    def is_due(self, queue: QueueLevel) -> bool:
        """The robot asks now."""
        return self.ticks_until_due(queue) == 0

    def ticks_until_due(self, queue: QueueLevel, latency: Nanos | None = None) -> int:
        """How many more actions are executed before the rule asks; 0 when it asks now.

        An event-driven simulator jumps this far ahead. A chunk that arrives meanwhile moves the
        instant, so ask again after a merge. The latency makes no difference.
        """
        return max(0, queue.remaining - self._most_remaining(queue.longest_chunk))

    def _most_remaining(self, longest_chunk: int) -> int:
        """Largest number of actions at which ``number / longest_chunk <= threshold``."""
        # The product and the quotient round differently (0.7 * 10 / 10); the quotient decides,
        # as it does in LeRobot's client.
        most = round(self.threshold * longest_chunk)
        return most - 1 if longest_chunk and most / longest_chunk > self.threshold else most


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferRule:
    """Ask when the queued actions last no longer than a stated time."""

    buffer: Nanos
    """Time the queue may last. Below the latency the robot starves before every answer."""
    control_period: Nanos
    """Time between two control ticks."""

    def __post_init__(self) -> None:
        if self.buffer < 0:
            raise ConfigError(f"buffer must be at least 0, got {self.buffer} ns")
        _check_period(self.control_period)

    def ticks_until_due(self, queue: QueueLevel, latency: Nanos | None = None) -> int:
        """How many more actions are executed before the rule asks; 0 when it asks now.

        The latency makes no difference.
        """
        return max(0, queue.remaining - self.buffer // self.control_period)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRule:
    """Ask as late as is safe: when the queue lasts for a request's measured time and a margin.

    A later request sees more of the world before it plans, and a robot asks less often; a
    quicker server makes it ask later by itself. While no latency is known the threshold decides.
    """

    control_period: Nanos
    """Time between two control ticks."""
    margin: Nanos = 50 * MILLISECOND
    """Time in hand for answers slower than the estimate. Each tick of it is an action executed
    from an older observation."""
    execution_horizon: int | None = None
    """Actions between two requests at most, however long the queue would last: for policies whose
    chunks are worse at their end; None: as many as it lasts."""
    until_known: ThresholdRule = field(default_factory=ThresholdRule)
    """Rule before the first latency was measured."""

    def __post_init__(self) -> None:
        if self.margin < 0:
            raise ConfigError(f"margin must be at least 0, got {self.margin} ns")
        if self.execution_horizon is not None and self.execution_horizon < 1:
            raise ConfigError(f"execution_horizon must be at least 1, got {self.execution_horizon}")
        _check_period(self.control_period)

    def ticks_until_due(self, queue: QueueLevel, latency: Nanos | None = None) -> int:
        """How many more actions are executed before the rule asks; 0 when it asks now."""
        if latency is None:
            return self.until_known.ticks_until_due(queue)
        # Rounded up: an answer that comes within a tick's time finds that action executed.
        least = -(-(latency + self.margin) // self.control_period)
        if self.execution_horizon is not None:
            # A chunk begins with its observation, so it has this many left when that many after
            # it were executed, whichever chunk they came from.
            least = max(least, queue.longest_chunk - self.execution_horizon)
        return max(0, queue.remaining - least)


def time_until_dry(queue: QueueLevel, control_period: Nanos) -> Nanos:
    """Time from the next control tick to the first tick that finds no action.

    Added to the instant of the next tick it is the request's ``due``: a chunk merged by then
    leaves no tick starved.

    Args:
        queue: The robot's queue.
        control_period: Time between two control ticks.

    Raises:
        ConfigError: ``control_period`` is not positive.
    """
    _check_period(control_period)
    return queue.remaining * control_period


def due_in(
    queue: QueueLevel,
    *,
    control_period: Nanos,
    now: Nanos,
    next_tick: Nanos,
    network: Nanos | None = None,
) -> Nanos:
    """What a request tells the server: how long until the robot runs out of actions.

    Args:
        queue: The robot's queue.
        control_period: Time between two control ticks.
        now: This instant.
        next_tick: Instant of the next control tick; one that is overdue counts as now.
        network: Measured time of the network both ways, which is taken off; None: not known.

    Returns:
        A duration; negative when an answer can no longer be in time.
    """
    dry_at = max(next_tick, now) + time_until_dry(queue, control_period)
    return dry_at - now - (network or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a request tells the server. Durations only: clocks need not agree."""

    due_in: Nanos
    """Time until the queue runs dry, less the network's both ways; negative when an answer can
    no longer be in time."""
    must_go: bool
    """The queue is empty: the robot waits for this answer. LeRobot's servers call it so."""


class Replanner:
    """Asks by a rule, one request at a time, and learns how long the answers take.

    Args:
        rule: When to ask.
        control_period: Time between two control ticks.
        patience: An answer is overdue after this multiple of the measured latency.

    Raises:
        ConfigError: ``control_period`` is not positive, or ``patience`` below 1.
    """

    def __init__(
        self, rule: ReplanningRule, *, control_period: Nanos, patience: float = 2.0
    ) -> None:
        _check_period(control_period)
        if not patience >= 1:
            raise ConfigError(f"patience must be at least 1, got {patience}")
        self._rule = rule
        self._control_period = control_period
        self._patience = patience
        self._latency = LatencyEstimate()
        self._network = LatencyEstimate.of_network()
        self._asked: Nanos | None = None
        self._unanswered_since: Nanos | None = None

    @property
    def is_waiting(self) -> bool:
        """A request is under way."""
        return self._asked is not None

    @property
    def latency(self) -> LatencyEstimate:
        """From asking to the answer."""
        return self._latency

    @property
    def network(self) -> LatencyEstimate:
        """The network's share of it, both ways."""
        return self._network

    def is_due(self, queue: QueueLevel) -> bool:
        """The robot asks now: the rule says so, and no request is under way."""
        if self._asked is not None:
            return False
        return self._rule.ticks_until_due(queue, self._latency.estimate) == 0

    def ask(self, queue: QueueLevel, *, now: Nanos, next_tick: Nanos) -> Ask:
        """A request leaves; it is under way until :meth:`answered` or :meth:`failed`.

        Args:
            queue: The robot's queue.
            now: This instant.
            next_tick: Instant of the next control tick.

        Raises:
            UsageError: One is under way.
        """
        if self._asked is not None:
            raise UsageError("a request is under way; ask when is_due says so")
        self._asked = now
        if self._unanswered_since is None:
            self._unanswered_since = now
        due = due_in(
            queue,
            control_period=self._control_period,
            now=now,
            next_tick=next_tick,
            network=self._network.estimate,
        )
        return Ask(due_in=due, must_go=queue.remaining == 0)

    def answered(self, now: Nanos, *, network: Nanos | None = None) -> None:
        """The answer came.

        Args:
            now: This instant.
            network: The network's share of its time; None: not known, and all of it counts.

        Raises:
            UsageError: No request is under way.
        """
        if self._asked is None:
            raise UsageError("no request is under way")
        took = now - self._asked
        self._asked = self._unanswered_since = None
        self._latency.add(took)
        self._network.add(took if network is None else network)

    def failed(self) -> None:
        """No answer will come. The robot waits for one all the same, and goes on waiting."""
        self._asked = None

    def is_overdue(self, queue: QueueLevel, now: Nanos) -> bool:
        """The robot waits longer than it had to lately, failed requests included.

        While no latency is known, an answer is overdue when the queue is empty.
        """
        if self._unanswered_since is None:
            return False
        latency = self._latency.estimate
        if latency is None:
            return queue.remaining == 0
        return now - self._unanswered_since > self._patience * latency


def _check_period(control_period: Nanos) -> None:
    if control_period <= 0:
        raise ConfigError(f"control_period must be positive, got {control_period} ns")
