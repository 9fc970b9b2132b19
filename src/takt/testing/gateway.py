"""A gateway without sockets: real slots and real messages, in the memory of the test."""

from __future__ import annotations

from collections.abc import Mapping

from takt.errors import UsageError
from takt.link.layout import SlotLayout, SlotView
from takt.link.messages import SlotRef, Submit
from takt.link.slots import SlotTable
from takt.runtime.events import Arrived, Cancelled
from takt.runtime.models import LoadedModel
from takt.schema.row import RowHeader
from takt.units import SECOND, Nanos

__all__ = ["FakeGateway"]

_SLOT_BYTES = 4096


class FakeGateway:
    """Writes rows into slots and makes the events a worker's loop would take in.

    Args:
        epoch: Number of this life of the gateway.
        num_slots: Slots of its arena.
    """

    def __init__(self, *, epoch: int = 1, num_slots: int = 64) -> None:
        self.epoch = epoch
        self.table: SlotTable[str] = SlotTable(num_slots, epoch=epoch)
        """Slots by the session that uses them; refuses what breaks the rules of the link."""
        self._slots = [bytearray(_SLOT_BYTES) for _ in range(num_slots)]

    def slot(self, ref: SlotRef, layout: SlotLayout) -> SlotView:
        """As :meth:`takt.link.ends.GatewayLink.slot`."""
        if ref.slot >= len(self._slots):
            raise UsageError(f"slot {ref.slot}: the arena has {len(self._slots)}")
        return SlotView(memoryview(self._slots[ref.slot]), layout)

    def write(self, loaded: LoadedModel, *, session: str, value: float = 0.0) -> SlotRef:
        """Take a slot and write a row whose first state value is ``value``.

        Raises:
            UsageError: No slot is free.
        """
        ref = self.table.claim(session)
        if ref is None:
            raise UsageError("no slot is free")
        view = self.slot(ref, loaded.slot_layout)
        view.stamp(ref)
        view.full["state"][...] = 0
        view.full["state"][0] = value
        self.table.submit(ref, link=1)
        return ref

    def arrive(
        self,
        loaded: LoadedModel,
        now: Nanos,
        *,
        session: str = "arm",
        value: float = 0.0,
        due_in: Nanos = SECOND,
        promise_in: Nanos | None = None,
        expires_in: Nanos = 2 * SECOND,
        layout: int = 0,
        supersede: bool = True,
        row: Mapping[str, int] | None = None,
    ) -> Arrived:
        """Write a row and submit it at ``now``; times count from there."""
        ref = self.write(loaded, session=session, value=value)
        action = loaded.spec.action
        header = RowHeader(
            layout=layout, state_dim=4, horizon=action.horizon, action_dim=action.action_dim
        )
        submit = Submit(
            ref=ref,
            model=loaded.model.name,
            session=session,
            sequence=0,
            seed=0,
            sent=now,
            age=0,
            due_in=due_in,
            promise_in=due_in if promise_in is None else promise_in,
            expires_in=expires_in,
            layout=layout,
            row=dict(header.to_plain() if row is None else row),
            supersede=supersede,
        )
        return Arrived(self, submit)

    def cancel(self, ref: SlotRef) -> Cancelled:
        """Give up a request."""
        self.table.cancel(ref)
        return Cancelled(self, ref)
