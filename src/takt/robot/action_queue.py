"""Holds the actions a robot has yet to execute, by absolute control timestep.

A *timestep* counts executed actions. It is an index, not a time: while a robot starves its
timestep stands still, so actions that arrive late are executed late and not skipped. What is
skipped is only what was executed already: consumption is counted, never guessed from a latency.
This is how LeRobot's asynchronous client counts, and a server that reads timesteps as a clock is
wrong by every starved tick.

The queue never executes a timestep twice and never goes backwards. It neither copies nor looks at
actions: a :class:`TimedChunk` keeps the sequence it was given, which may be rows of an array on a
robot or a ``range`` in the simulator. What needs values is handed in: a merge rule
(:mod:`takt.robot.blending`) and a meter of splices (:mod:`takt.robot.splices`). The queue is not
thread-safe; one control loop owns it.

Start reading at :meth:`ActionQueue.merge`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from takt.errors import UsageError
from takt.units import Nanos

__all__ = [
    "ActionQueue",
    "Actions",
    "ChunkOrigin",
    "FlushRule",
    "Junction",
    "MergeRule",
    "TimedAction",
    "TimedChunk",
    "latest_only",
]

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)

FlushRule: TypeAlias = Literal["drop", "replace", "keep"]
"""What becomes of queued actions after a cut: ``drop`` executes none of them; ``replace`` goes on
executing them and lets the next chunk replace them whatever the merge rule, because a plan from
before the cut has nothing to say about one from after it; ``keep`` changes nothing."""


class Actions(Protocol[A_co]):
    """Actions of consecutive timesteps: an array of rows, a list, a tuple or a ``range``."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> A_co: ...


@dataclass(frozen=True, slots=True)
class ChunkOrigin:
    """Where a chunk comes from."""

    chunk_id: int
    """Rises with the observations: a chunk with a lower number answers an older observation."""
    observed: Nanos
    """Instant of that observation, on the robot's monotonic clock."""


@dataclass(slots=True)  # frozen, it takes three times as long to make, and a simulation makes many
class TimedChunk(Generic[A]):
    """An action chunk that knows when its actions are meant to be executed."""

    first_timestep: int
    """Timestep of ``actions[0]``."""
    actions: Actions[A]
    """One action per timestep, in order."""
    origin: ChunkOrigin | None = None
    """Where it comes from; None: nobody said."""
    blended_end: int = 0
    """Actions before this timestep are mixed with those of earlier chunks."""

    @property
    def end(self) -> int:
        """First timestep after the chunk."""
        return self.first_timestep + len(self.actions)


@dataclass(frozen=True, slots=True)
class TimedAction(Generic[A]):
    """One action with its origin."""

    action: A
    timestep: int
    """Timestep at which it is executed."""
    first_timestep: int
    """Timestep of its chunk's first action, that of the observation."""
    origin: ChunkOrigin | None
    """Where its chunk comes from; None: nobody said. Of a blended action, its newest part."""
    is_blended: bool
    """It is mixed with actions of earlier chunks."""

    @property
    def index(self) -> int:
        """Its place in its chunk."""
        return self.timestep - self.first_timestep

    def age(self, now: Nanos) -> Nanos | None:
        """Time since its observation; None: nobody said when that was."""
        return None if self.origin is None else now - self.origin.observed


@dataclass(frozen=True, slots=True)
class Junction(Generic[A]):
    """Where one plan ends and the next begins."""

    timestep: int
    """First timestep executed by the new plan."""
    executed: A | None
    """The action executed before it; None: there is none yet."""
    queued: TimedChunk[A] | None
    """The old plan; None: there was nothing left of it."""
    arrived: TimedChunk[A]
    """The chunk that came."""
    plan: TimedChunk[A]
    """The new plan, made of both by the merge rule."""


MergeRule: TypeAlias = Callable[[TimedChunk[A], TimedChunk[A], int], TimedChunk[A]]
"""What to queue, given the chunk still queued, the one that arrived, and the next timestep.

Both have actions left to execute. The queue drops executed timesteps from the result, so a rule
may leave them in. A rule must not modify its arguments; it sets ``origin`` and ``blended_end`` of
what it returns.
"""


def latest_only(
    queued: TimedChunk[A],
    arrived: TimedChunk[A],
    next_timestep: int,
) -> TimedChunk[A]:
    """Replace the queue by the chunk that arrived: ``action = new``.

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
        on_splice: Called with every junction, before the first action of the new plan is
            executed; None: nobody looks, and no action is read.
    """

    # Everything a simulated robot asks a million times is one subtraction away. Invariant:
    # floor <= next <= end, and an empty queue has all three equal.
    __slots__ = (
        "_chunk",
        "_end",
        "_executed",
        "_floor",
        "_is_replaced_next",
        "_joined",
        "_longest_chunk",
        "_merge_rule",
        "_newest_id",
        "_next",
        "_on_splice",
        "_overtaken",
        "_starved_ticks",
    )

    def __init__(
        self,
        merge_rule: MergeRule[A] = latest_only,
        *,
        on_splice: Callable[[Junction[A]], None] | None = None,
    ) -> None:
        self._merge_rule = merge_rule
        self._on_splice = on_splice
        self._chunk: TimedChunk[A] = TimedChunk(0, ())
        self._floor = 0  # first timestep that was not executed
        self._next = 0  # timestep of the next action
        self._end = 0  # first timestep after the queue
        self._joined = 0  # the floor when the chunk became the queue
        self._executed: A | None = None  # the last action executed before that
        self._is_replaced_next = False
        self._newest_id: int | None = None
        self._longest_chunk = 0
        self._overtaken = 0
        self._starved_ticks = 0

    @property
    def next_timestep(self) -> int:
        """Timestep of the next action; of an empty queue, the first one not executed."""
        return self._next

    @property
    def remaining(self) -> int:
        """Actions left to execute."""
        return self._end - self._next

    @property
    def queued(self) -> TimedChunk[A] | None:
        """The plan being executed, its executed timesteps included; None when nothing is left."""
        return self._chunk if self._next < self._end else None

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

    @property
    def overtaken(self) -> int:
        """Chunks dropped because one with the same or a higher ``chunk_id`` came before."""
        return self._overtaken

    def merge(
        self, first_timestep: int, actions: Actions[A], origin: ChunkOrigin | None = None
    ) -> int:
        """Take in a chunk.

        Its executed timesteps are dropped, and a chunk with no others changes nothing; LeRobot's
        client empties its queue in that case and starves. A chunk that begins later than
        ``next_timestep`` is taken, and the robot skips to its first timestep. A chunk whose origin
        is not newer than all before, a duplicate or one that was overtaken, is dropped; of chunks
        without origin the one merged last counts.

        Args:
            first_timestep: Absolute timestep of ``actions[0]``, usually that of the observation.
            actions: The chunk. It is kept, not copied: do not write to it afterwards.
            origin: Where it comes from.

        Returns:
            How many of the chunk's timesteps were not executed yet; 0 when it came too late.

        Raises:
            UsageError: ``first_timestep`` is negative, or the merge rule refuses the actions; the
                queue is then as before.
        """
        if first_timestep < 0:
            raise UsageError(f"first_timestep must be at least 0, got {first_timestep}")
        length = len(actions)
        self._longest_chunk = max(self._longest_chunk, length)
        fresh = min(length, first_timestep + length - self._floor)
        if origin is not None and self._is_overtaken(origin):
            return 0
        if fresh <= 0:
            return 0
        self._join(TimedChunk(first_timestep, actions, origin))
        return fresh

    def peek(self) -> TimedAction[A] | None:
        """The action that :meth:`pop` would execute; None when there is none."""
        if self._next == self._end:
            return None
        chunk = self._chunk
        return TimedAction(
            chunk.actions[self._next - chunk.first_timestep],
            self._next,
            chunk.first_timestep,
            chunk.origin,
            self._next < chunk.blended_end,
        )

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
        executed = min(ticks, self._end - self._next)
        if executed:  # else a chunk that begins later would move the floor without being executed
            self._floor = self._next = self._next + executed
        self._starved_ticks += ticks - executed
        return ticks - executed

    def flush(self, rule: FlushRule = "drop") -> int:
        """Give up queued actions after a cut or before a resume.

        Returns:
            How many actions were dropped at once.
        """
        if rule == "replace":
            self._is_replaced_next = True
        if rule != "drop":
            return 0
        dropped = self._end - self._next
        self._next = self._end = self._floor
        return dropped

    def _is_overtaken(self, origin: ChunkOrigin) -> bool:
        if self._newest_id is not None and origin.chunk_id <= self._newest_id:
            self._overtaken += 1
            return True
        self._newest_id = origin.chunk_id
        return False

    def _join(self, arrived: TimedChunk[A]) -> None:
        queued = self.queued
        if queued is None or self._is_replaced_next:
            plan = arrived
        else:
            plan = self._merge_rule(queued, arrived, self._next)
        first = max(self._floor, plan.first_timestep)
        end = plan.end
        if self._on_splice is not None:
            self._executed = self._last_executed()
            if first < end:
                self._on_splice(Junction(first, self._executed, queued, arrived, plan))
        self._is_replaced_next = False
        self._chunk = plan
        self._joined = self._floor
        self._next, self._end = (first, end) if first < end else (self._floor, self._floor)

    def _last_executed(self) -> A | None:
        if self._floor == self._joined:
            return self._executed
        return self._chunk.actions[self._floor - 1 - self._chunk.first_timestep]
