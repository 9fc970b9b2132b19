"""Holds the actions a robot has yet to execute, by absolute control timestep.

A *timestep* counts executed actions. It is an index, not a time: while a robot starves its
timestep stands still, so actions that arrive late are executed late and not skipped. What is
skipped is only what was executed already. This is how LeRobot's asynchronous client counts, and
a server that reads timesteps as a clock is wrong by every starved tick.

The queue never executes a timestep twice and never goes backwards. It copies no actions: a
:class:`TimedChunk` keeps the sequence it was given, which may be rows of an array on a robot or
a ``range`` in the simulator. It is not thread-safe; one control loop owns it.

Start reading at :meth:`ActionQueue.merge`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from takt.errors import UsageError

__all__ = ["ActionQueue", "Actions", "MergeRule", "TimedChunk", "latest_only"]

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Actions(Protocol[A_co]):
    """Actions of consecutive timesteps: an array of rows, a list, a tuple or a ``range``."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> A_co: ...


@dataclass(frozen=True, slots=True)
class TimedChunk(Generic[A]):
    """An action chunk that knows when its actions are meant to be executed."""

    first_timestep: int
    """Timestep of ``actions[0]``."""
    actions: Actions[A]
    """One action per timestep, in order."""

    @property
    def end(self) -> int:
        """First timestep after the chunk."""
        return self.first_timestep + len(self.actions)


MergeRule: TypeAlias = Callable[[TimedChunk[A], TimedChunk[A]], TimedChunk[A]]
"""What to queue, given the chunk still queued and the one that arrived, in that order.

Both have actions left to execute. The queue drops executed timesteps from the result, so a rule
need not know where the robot stands. A rule must not modify its arguments.
"""


def latest_only(queued: TimedChunk[A], arrived: TimedChunk[A]) -> TimedChunk[A]:
    """Replace the queue by the chunk that arrived.

    Queued actions of timesteps that the new chunk does not cover are dropped, even those before
    its first timestep: a mixture of two plans is no plan.

    Source:
        The rule LeRobot's asynchronous client calls ``latest_only``.
    """
    return arrived


class ActionQueue(Generic[A]):
    """The actions a robot has yet to execute. Every operation is O(1) under :func:`latest_only`.

    Args:
        merge_rule: How a chunk that arrives joins the actions still queued.
    """

    __slots__ = ("_chunk", "_floor", "_longest_chunk", "_merge_rule", "_starved_ticks")

    def __init__(self, merge_rule: MergeRule[A] = latest_only) -> None:
        self._merge_rule = merge_rule
        self._chunk: TimedChunk[A] = TimedChunk(0, ())
        self._floor = 0  # first timestep that was not executed
        self._longest_chunk = 0
        self._starved_ticks = 0

    @property
    def next_timestep(self) -> int:
        """Timestep of the next action; of an empty queue, the first one not executed."""
        return max(self._floor, self._chunk.first_timestep) if self.remaining else self._floor

    @property
    def remaining(self) -> int:
        """Actions left to execute."""
        chunk = self._chunk
        return max(0, chunk.end - max(self._floor, chunk.first_timestep))

    @property
    def longest_chunk(self) -> int:
        """Length of the longest chunk that arrived so far; 0 before the first."""
        return self._longest_chunk

    @property
    def fill(self) -> float:
        """``remaining / longest_chunk``, 0..1; 0 before the first chunk."""
        return self.remaining / self._longest_chunk if self._longest_chunk else 0.0

    @property
    def starved_ticks(self) -> int:
        """Ticks that found no action, those before the first chunk included."""
        return self._starved_ticks

    def merge(self, first_timestep: int, actions: Actions[A]) -> int:
        """Take in a chunk.

        Its executed timesteps are dropped, and a chunk with no others changes nothing; LeRobot's
        client empties its queue in that case and starves. A chunk that begins later than
        ``next_timestep`` is taken, and the robot skips to its first timestep. Of two chunks the
        one merged last counts: a caller whose answers may overtake each other drops the older
        observation's.

        Args:
            first_timestep: Absolute timestep of ``actions[0]``, usually that of the observation.
            actions: The chunk. It is kept, not copied: do not write to it afterwards.

        Returns:
            How many of the chunk's timesteps were not executed yet; 0 when it came too late.

        Raises:
            UsageError: ``first_timestep`` is negative.
        """
        if first_timestep < 0:
            raise UsageError(f"first_timestep must be at least 0, got {first_timestep}")
        arrived = TimedChunk(first_timestep, actions)
        self._longest_chunk = max(self._longest_chunk, len(actions))
        fresh = min(len(actions), max(0, arrived.end - self._floor))
        if fresh:
            self._chunk = self._merge_rule(self._chunk, arrived) if self.remaining else arrived
        return fresh

    def pop(self) -> A | None:
        """Execute one control tick.

        Returns:
            The next action as the chunk holds it (a row of an array is a view), or None when
            there is none: the tick is counted as starved and the timestep stands still.
        """
        if self.advance(1):
            return None
        return self._chunk.actions[self._floor - 1 - self._chunk.first_timestep]

    def advance(self, ticks: int) -> int:
        """Execute ``ticks`` control ticks at once and drop their actions.

        The queue is left as ``ticks`` calls of :meth:`pop` leave it.

        Returns:
            How many of these ticks found no action.

        Raises:
            UsageError: ``ticks`` is negative.
        """
        if ticks < 0:
            raise UsageError(f"ticks must be at least 0, got {ticks}")
        executed = min(ticks, self.remaining)
        if executed:  # else a chunk that begins later would move the floor without being executed
            self._floor = self.next_timestep + executed
        self._starved_ticks += ticks - executed
        return ticks - executed
