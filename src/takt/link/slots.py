"""Which slot of the arena belongs to which request, and who may still touch its bytes.

```
FREE -> WRITING -> SUBMITTED -> RUNNING -> REPLIED -> FREE
   WRITING, SUBMITTED, RUNNING -> ABANDONED -> FREE          the client is gone
   SUBMITTED, RUNNING -> ORPHANED -> SUBMITTED or FREE       the worker is gone
```

A slot is used again only when its request is settled (answered, refused or cancelled) *and*
nobody touches its bytes any more: a cancelled request stays ABANDONED until the thread that
writes it has finished or the worker that reads it has said so or is gone. A worker that is lost
leaves its requests ORPHANED: the bytes are whole, so another worker can take them over.

Everything a worker says is checked against ``(epoch, slot, generation)`` and against the link the
request was sent over. What does not fit is dropped and counted: that makes it impossible that a
chunk reaches a request it was not computed for.

The table is pure: it owns no memory and opens no socket. One thread (the gateway's loop) uses it.
Start reading at :data:`ALLOWED`, then :meth:`SlotTable.claim`.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from takt.errors import InvariantError, UsageError
from takt.link.messages import SlotRef

__all__ = ["ALLOWED", "Drop", "SlotState", "SlotTable"]

T = TypeVar("T")


class SlotState(Enum):
    """Where the request of a slot is."""

    FREE = "free"
    WRITING = "writing"
    SUBMITTED = "submitted"
    RUNNING = "running"
    REPLIED = "replied"
    ORPHANED = "orphaned"
    ABANDONED = "abandoned"


ALLOWED: Mapping[SlotState, frozenset[SlotState]] = {
    SlotState.FREE: frozenset({SlotState.WRITING}),
    # WRITING -> FREE: the observation turned out to be unusable.
    SlotState.WRITING: frozenset({SlotState.SUBMITTED, SlotState.ABANDONED, SlotState.FREE}),
    SlotState.SUBMITTED: frozenset(
        {SlotState.RUNNING, SlotState.REPLIED, SlotState.ORPHANED, SlotState.ABANDONED}
    ),
    SlotState.RUNNING: frozenset({SlotState.REPLIED, SlotState.ORPHANED, SlotState.ABANDONED}),
    SlotState.ORPHANED: frozenset({SlotState.SUBMITTED, SlotState.FREE}),
    SlotState.REPLIED: frozenset({SlotState.FREE}),
    SlotState.ABANDONED: frozenset({SlotState.FREE}),
}
_AT_WORKER = (SlotState.SUBMITTED, SlotState.RUNNING)


class Drop(Enum):
    """Why something a worker said was dropped."""

    EPOCH = "epoch"
    """It answers a gateway that is gone."""
    SLOT = "slot"
    """The arena has no such slot."""
    GENERATION = "generation"
    """The slot serves another request by now."""
    LINK = "link"
    """The request was not sent over this link."""
    STATE = "state"
    """Nobody waits for it: a second reply, or one after a cancel."""


@dataclass(slots=True)
class _Slot(Generic[T]):
    """One place of the arena."""

    state: SlotState = SlotState.FREE
    generation: int = 0
    ticket: T | None = None
    """What the gateway wants back with the chunk; None once the request is settled."""
    link: int | None = None
    """Over which link the request was sent."""
    is_touched: bool = False
    """Whether the writing thread or the worker may still touch the bytes."""

    def move(self, to: SlotState) -> None:
        if to not in ALLOWED[self.state]:
            raise InvariantError(f"slot: {self.state.name} -> {to.name} is no move")
        self.state = to


class SlotTable(Generic[T]):
    """The slots of one gateway.

    Args:
        num_slots: Slots of the arena.
        epoch: Number of this life of the gateway; drawn at random at its start.
    """

    def __init__(self, num_slots: int, *, epoch: int) -> None:
        if num_slots < 1:
            raise UsageError(f"num_slots must be at least 1, got {num_slots}")
        self.epoch = epoch
        self.dropped: Counter[Drop] = Counter()
        self._slots: list[_Slot[T]] = [_Slot() for _ in range(num_slots)]
        # Oldest first: bytes that somebody still reads against the rules stay unchanged longest.
        self._free: deque[int] = deque(range(num_slots))

    @property
    def num_free(self) -> int:
        """Slots that can be claimed now."""
        return len(self._free)

    def census(self) -> Mapping[SlotState, int]:
        """How many slots are in each state."""
        counts = Counter(slot.state for slot in self._slots)
        return {state: counts[state] for state in SlotState}

    def claim(self, ticket: T) -> SlotRef | None:
        """Take a slot for writing an observation into it; None if all are in use.

        Args:
            ticket: Handed back with the reply. None is no ticket.

        Raises:
            UsageError: The ticket is None.
        """
        if ticket is None:
            raise UsageError("a ticket is what comes back with the reply; it cannot be None")
        if not self._free:
            return None
        number = self._free.popleft()
        slot = self._slots[number]
        slot.move(SlotState.WRITING)
        slot.generation += 1
        slot.ticket, slot.link, slot.is_touched = ticket, None, True
        return SlotRef(self.epoch, number, slot.generation)

    def withdraw(self, ref: SlotRef) -> None:
        """The writer gives up, for example because the observation is not what the model takes."""
        slot = self._own(ref, SlotState.WRITING, SlotState.ABANDONED)
        slot.is_touched = False
        self._settle(ref.slot, SlotState.FREE)

    def submit(self, ref: SlotRef, *, link: int) -> bool:
        """The observation is written (or its worker was lost) and goes to a worker.

        Args:
            ref: From :meth:`claim` or :meth:`lose_link`.
            link: Number of the link, never used for two connections.

        Returns:
            False if the request was cancelled while it was written: send nothing, the slot is
            free again.
        """
        slot = self._own(ref, SlotState.WRITING, SlotState.ORPHANED, SlotState.ABANDONED)
        if slot.state is SlotState.ABANDONED:
            self.withdraw(ref)
            return False
        slot.move(SlotState.SUBMITTED)
        slot.link, slot.is_touched = link, True
        return True

    def cancel(self, ref: SlotRef) -> int | None:
        """Nobody wants the chunk any more.

        Cancelling a request that is settled already does nothing.

        Returns:
            The link over which Cancel must be sent, None if no worker has the request.
        """
        slot = self._slots[ref.slot]
        if not self._is_current(ref) or slot.ticket is None:
            return None
        informed = slot.link if slot.state in _AT_WORKER else None
        to = SlotState.FREE if slot.state is SlotState.ORPHANED else SlotState.ABANDONED
        self._settle(ref.slot, to)
        return informed

    def mark_running(self, ref: SlotRef, *, link: int) -> None:
        """The worker put the request into a launch."""
        slot = self._said(ref, link)
        if slot is not None and slot.state is SlotState.SUBMITTED:
            slot.move(SlotState.RUNNING)

    def reply(self, ref: SlotRef, *, link: int, still_reading: bool = False) -> T | None:
        """The worker answered the request.

        Returns:
            The ticket of the one request this answer belongs to; None if it was dropped.
        """
        slot = self._said(ref, link)
        if slot is None:
            return None
        slot.is_touched = slot.is_touched and still_reading
        ticket = slot.ticket
        if ticket is None:
            self.dropped[Drop.STATE] += 1
            self._reuse_if_done(ref.slot)
            return None
        self._settle(ref.slot, SlotState.REPLIED)
        return ticket

    def release(self, ref: SlotRef, *, link: int) -> None:
        """The worker no longer reads the slot; its reply may still be to come."""
        slot = self._said(ref, link)
        if slot is not None:
            slot.is_touched = False
            self._reuse_if_done(ref.slot)

    def lose_link(self, link: int) -> list[tuple[SlotRef, T]]:
        """A link ended: its worker can neither answer nor keep a slot any more.

        Returns:
            Requests without an answer, by slot. Each must be submitted again or cancelled.
        """
        orphans: list[tuple[SlotRef, T]] = []
        for number, slot in enumerate(self._slots):
            if slot.link != link:
                continue
            slot.link, slot.is_touched = None, False
            if slot.ticket is None:
                self._reuse_if_done(number)
                continue
            slot.move(SlotState.ORPHANED)
            orphans.append((SlotRef(self.epoch, number, slot.generation), slot.ticket))
        return orphans

    def _settle(self, number: int, to: SlotState) -> None:
        slot = self._slots[number]
        slot.ticket = None
        if to is not SlotState.FREE:
            slot.move(to)
        self._reuse_if_done(number)

    def _reuse_if_done(self, number: int) -> None:
        slot = self._slots[number]
        if slot.is_touched or slot.ticket is not None or slot.state is SlotState.FREE:
            return
        slot.move(SlotState.FREE)
        slot.link = None
        self._free.append(number)

    def _is_current(self, ref: SlotRef) -> bool:
        return ref.epoch == self.epoch and self._slots[ref.slot].generation == ref.generation

    def _own(self, ref: SlotRef, *states: SlotState) -> _Slot[T]:
        """The slot of a reference the gateway itself holds."""
        slot = self._slots[ref.slot]
        if not self._is_current(ref) or slot.state not in states:
            expected = " or ".join(state.name for state in states)
            raise UsageError(
                f"slot {ref.slot} generation {ref.generation} is not {expected}: it is "
                f"{slot.state.name} in generation {slot.generation}"
            )
        return slot

    def _said(self, ref: SlotRef, link: int) -> _Slot[T] | None:
        """The slot a worker speaks of, or None (and a count) if it cannot mean it."""
        drop = self._why_drop(ref, link)
        if drop is not None:
            self.dropped[drop] += 1
            return None
        return self._slots[ref.slot]

    def _why_drop(self, ref: SlotRef, link: int) -> Drop | None:
        if ref.epoch != self.epoch:
            return Drop.EPOCH
        if ref.slot >= len(self._slots):
            return Drop.SLOT
        slot = self._slots[ref.slot]
        if slot.generation != ref.generation:
            return Drop.GENERATION
        if slot.link == link:
            return None
        return Drop.STATE if slot.state is SlotState.FREE else Drop.LINK
