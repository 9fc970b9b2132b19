"""A gateway of one thread for tests of real workers: an arena, slots and one link."""

import select
import time
from collections.abc import Callable

import numpy as np

from takt.link.arena import Arena, ArenaGeometry
from takt.link.ends import WorkerLink
from takt.link.layout import SlotLayout, SlotView
from takt.link.listener import connect
from takt.link.messages import (
    Cancel,
    Released,
    Reply,
    SlotRef,
    Submit,
    WorkerMessage,
)
from takt.link.slots import SlotTable
from takt.policies.catalog import open_policy
from takt.schema.observation import Observation
from takt.schema.row import RowRequest
from takt.units import SECOND

__all__ = ["TIMEOUT_MS", "SmallGateway", "echo_of"]

TIMEOUT_MS = 60_000
NUM_SLOTS = 64
SLOT_BYTES = 16 * 1024


def echo_of(state: np.ndarray, horizon: int) -> np.ndarray:
    """What the echo policy answers, by its definition."""
    return state.astype(np.float32)[None, :] + np.arange(horizon, dtype=np.float32)[:, None]


class SmallGateway:
    """One link to one worker, without doors."""

    def __init__(self, address: str, *, epoch: int = 0xFEED, num_slots: int = NUM_SLOTS) -> None:
        geometry = ArenaGeometry(num_slots=num_slots, slot_bytes=SLOT_BYTES)
        self.arena = Arena.create(geometry)
        self.table: SlotTable[object] = SlotTable(num_slots, epoch=epoch)
        self.link = WorkerLink(connect(address), self.arena, gateway="small", epoch=epoch)
        self.preprocessor = open_policy("echo").preprocessor()
        spec = self.preprocessor.spec
        self.layout = SlotLayout.of((t.name, t.shape, t.dtype) for t in spec.slot_tensors)
        self.views: dict[int, SlotView] = {}

    def submit(
        self,
        state: np.ndarray,
        *,
        model: str = "echo",
        session: str = "arm",
        horizon: int = 50,
        slo: int = 30 * SECOND,
        ticket: object = None,
        supersede: bool = True,
    ) -> SlotRef:
        """Write an observation into a slot and send it."""
        ref = self.table.claim(session if ticket is None else ticket)
        assert ref is not None, "no free slot"
        view = self.views.get(ref.slot)
        if view is None:
            view = self.views[ref.slot] = SlotView(self.arena.slot(ref.slot), self.layout)
        view.stamp(ref)
        request = RowRequest(session=session, horizon=horizon)
        header = self.preprocessor.write(Observation(state=state), view.full, request)
        self.table.submit(ref, link=1)
        message = Submit(
            ref=ref,
            model=model,
            session=session,
            sequence=0,
            seed=0,
            sent=time.monotonic_ns(),
            age=0,
            due_in=slo,
            promise_in=slo,
            expires_in=2 * slo,
            row=dict(header.to_plain()),
            supersede=supersede,
        )
        self.link.send(message)
        return ref

    def cancel(self, ref: SlotRef) -> None:
        """Nobody wants the answer any more."""
        if self.table.cancel(ref) is not None:
            self.link.send(Cancel(ref=ref))

    def hear(self) -> list[WorkerMessage]:
        """Wait for messages and do with slots what they say; empty at the end of the link."""
        poll = select.poll()
        poll.register(self.link.channel.fileno(), select.POLLIN)
        assert poll.poll(TIMEOUT_MS), "nothing came"
        return self.link.receive()

    def hear_until(self, is_enough: Callable[[list[WorkerMessage]], bool]) -> list[WorkerMessage]:
        """Collect messages until they are enough."""
        heard: list[WorkerMessage] = []
        while not is_enough(heard):
            assert self.link.channel.is_open, f"the link ended: {self.link.channel.end_reason}"
            heard += self.hear()
        return heard

    def replies(self, count: int, owners: dict[object, str] | None = None) -> list[Reply]:
        """The next ``count`` replies; ``owners`` receives the ticket of each by its reference."""
        heard = self.hear_until(lambda got: sum(isinstance(m, Reply) for m in got) >= count)
        for message in heard:
            ticket = self.settle(message)
            if owners is not None and isinstance(message, Reply):
                owners[message.ref] = str(ticket)
        return [message for message in heard if isinstance(message, Reply)]

    def settle(self, message: WorkerMessage) -> object:
        """Do with the slots what a message says; the ticket of the request it answers."""
        if isinstance(message, Reply):
            return self.table.reply(message.ref, link=1, still_reading=message.still_reading)
        if isinstance(message, Released):
            self.table.release(message.ref, link=1)
        return None

    def settle_some(self) -> None:
        """Wait until something comes."""
        for message in self.hear():
            self.settle(message)

    def settle_all(self) -> None:
        """Wait until every slot is free again."""
        while self.table.num_free < self.arena.geometry.num_slots:
            self.settle_some()

    def close(self) -> None:
        """Leave without a word."""
        self.link.channel.close()
        self.arena.close()
