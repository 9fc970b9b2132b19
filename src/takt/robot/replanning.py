"""Decides when a robot asks for its next action chunk, and how long its actions last.

The rule looks at the queue alone. It does not know of a request under way: LeRobot's stock
client asks again at every tick while the rule holds, and a client that keeps one request in
flight checks that before it checks the rule.

Start reading at :class:`ThresholdRule`.
"""

from dataclasses import dataclass
from typing import Protocol

from takt.errors import ConfigError
from takt.units import Nanos

__all__ = ["QueueLevel", "ThresholdRule", "time_until_dry"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRule:
    """Ask when the queue has drained to a share of a chunk: LeRobot's threshold g.

    The rule is looked at after the tick's action was popped. Before the first chunk it always
    asks.
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

    def ticks_until_due(self, queue: QueueLevel) -> int:
        """How many more actions are executed before the rule asks; 0 when it asks now.

        An event-driven simulator jumps this far ahead. A chunk that arrives meanwhile moves the
        instant, so ask again after a merge.
        """
        return max(0, queue.remaining - self._most_remaining(queue.longest_chunk))

    def _most_remaining(self, longest_chunk: int) -> int:
        """Largest number of actions at which ``number / longest_chunk <= threshold``."""
        # The product and the quotient round differently (0.7 * 10 / 10); the quotient decides,
        # as it does in LeRobot's client.
        most = round(self.threshold * longest_chunk)
        return most - 1 if longest_chunk and most / longest_chunk > self.threshold else most


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
    if control_period <= 0:
        raise ConfigError(f"control_period must be positive, got {control_period} ns")
    return queue.remaining * control_period
