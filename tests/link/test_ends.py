"""Hello, the arena's way to the worker, and links that end at the first broken rule."""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from takt.errors import WireError
from takt.link.arena import Arena, ArenaGeometry
from takt.link.channel import Channel
from takt.link.ends import GatewayLink, WorkerLink
from takt.link.layout import SlotLayout, SlotView
from takt.link.messages import (
    Cancel,
    GatewayHello,
    GatewayMessage,
    Outcome,
    Reply,
    SlotRef,
    Submit,
    WorkerHello,
    chunk_fields,
    encode,
)
from takt.link.slots import Drop, SlotTable

EPOCH = 77
LAYOUT = SlotLayout.of([("state", (4,), "<f4")])


@dataclass
class Pair:
    arena: Arena
    gateway: WorkerLink
    worker: GatewayLink


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = socket.socketpair()
    arena = Arena.create(ArenaGeometry(num_slots=2, slot_bytes=4096))
    worker = GatewayLink(Channel(right, accept_fd=True))
    gateway = WorkerLink(Channel(left), arena, gateway="g0", epoch=EPOCH)
    yield Pair(arena, gateway, worker)
    gateway.channel.close()
    worker.close("test ended")
    arena.close()


def submit_of(ref: SlotRef) -> Submit:
    return Submit(
        ref=ref,
        model="echo",
        session="arm",
        sequence=0,
        seed=0,
        sent=0,
        age=0,
        due_in=0,
        promise_in=0,
        expires_in=1,
    )


def test_a_request_goes_out_through_the_arena_and_its_chunk_comes_back(pair: Pair) -> None:
    table: SlotTable[str] = SlotTable(2, epoch=EPOCH)
    [hello] = pair.worker.receive()
    pair.worker.send(WorkerHello(worker="w0", models=()))
    ref = table.claim("arm")
    assert ref is not None
    row = SlotView(pair.arena.slot(ref.slot), LAYOUT)
    row.stamp(ref)
    row.put("state", np.arange(4, dtype=np.float32))

    assert table.submit(ref, link=1)
    pair.gateway.send(submit_of(ref))
    [submit] = pair.worker.receive()
    assert isinstance(submit, Submit)
    state = pair.worker.slot(submit.ref, LAYOUT).read(submit.ref)["state"]
    chunk = state.astype(np.float32).reshape(2, 2) + 1
    pair.worker.send(Reply(ref=submit.ref, outcome=Outcome.SERVED, **chunk_fields(chunk)))
    worker_hello, reply = pair.gateway.receive()

    assert hello == GatewayHello(gateway="g0", epoch=EPOCH, num_slots=2, slot_bytes=4096)
    assert isinstance(worker_hello, WorkerHello)
    assert isinstance(reply, Reply)
    assert table.reply(reply.ref, link=1) == "arm"
    np.testing.assert_array_equal(reply.actions(), [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("ref", "drop"),
    [(SlotRef(EPOCH + 1, 0, 1), Drop.EPOCH), (SlotRef(EPOCH, 2, 1), Drop.SLOT)],
    ids=["epoch", "slot"],
)
def test_messages_for_another_life_or_no_slot_are_dropped(
    pair: Pair, ref: SlotRef, drop: Drop
) -> None:
    pair.worker.receive()

    pair.gateway.send(Cancel(ref=ref))

    assert pair.worker.receive() == []
    assert pair.worker.dropped == {drop: 1}
    assert pair.worker.channel.is_open


def greeted(channel: Channel, **changes: int) -> None:
    arena = Arena.create(ArenaGeometry(num_slots=2, slot_bytes=4096))
    hello = GatewayHello(gateway="g0", epoch=EPOCH, num_slots=2, slot_bytes=4096)
    channel.send(encode(msgspec.structs.replace(hello, **changes)), fds=[arena.fd])
    arena.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"num_slots": 3}, "bytes, got"), ({"slot_bytes": 100}, "multiple of 64")],
    ids=["size", "alignment"],
)
def test_a_hello_that_lies_about_the_arena_ends_the_link(
    changes: dict[str, int], reason: str
) -> None:
    left, right = socket.socketpair()
    gateway, worker = Channel(left), GatewayLink(Channel(right, accept_fd=True))
    before = len(os.listdir("/proc/self/fd"))

    greeted(gateway, **changes)
    messages = worker.receive()

    assert messages == []
    assert reason in (worker.channel.end_reason or "")
    assert len(os.listdir("/proc/self/fd")) == before - 1, "the arena's descriptor leaked"
    gateway.close()


@pytest.mark.parametrize("first", [submit_of(SlotRef(EPOCH, 0, 1)), Cancel(ref=SlotRef(1, 0, 1))])
def test_who_does_not_say_hello_first_is_not_served(first: GatewayMessage) -> None:
    left, right = socket.socketpair()
    gateway, worker = Channel(left), GatewayLink(Channel(right, accept_fd=True))

    gateway.send(encode(first))

    assert worker.receive() == []
    assert "hello first" in (worker.channel.end_reason or "")
    with pytest.raises(WireError, match="hello first"):
        _ = worker.epoch
    gateway.close()


def test_a_second_hello_ends_the_link(pair: Pair) -> None:
    pair.worker.receive()

    pair.gateway.send(GatewayHello(gateway="g", epoch=1, num_slots=1, slot_bytes=64))

    assert pair.worker.receive() == []
    assert "second" in (pair.worker.channel.end_reason or "")
    assert pair.worker.epoch == EPOCH


def test_what_was_said_before_a_broken_message_still_counts(pair: Pair) -> None:
    pair.worker.send(WorkerHello(worker="w0", models=()))
    pair.worker.channel.send(b"\xc1 nonsense")
    pair.worker.send(WorkerHello(worker="w0", models=()))

    assert len(pair.gateway.receive()) == 1
    assert not pair.gateway.channel.is_open
