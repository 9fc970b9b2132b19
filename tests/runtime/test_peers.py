"""Connections of gateways: heard in turn, dropped when they do not read, never waited for."""

import os
import selectors
from collections.abc import Iterator

import pytest

from takt.link.arena import Arena, ArenaGeometry
from takt.link.channel import Channel
from takt.link.ends import WorkerLink
from takt.link.layout import SlotLayout, SlotView
from takt.link.listener import Listener, connect, listen
from takt.link.messages import (
    AskStats,
    Cancel,
    GatewayHello,
    GatewayMessage,
    Outcome,
    Reply,
    SlotRef,
    Stats,
)
from takt.link.slots import Drop
from takt.runtime.peers import Peer, Peers

LAYOUT = SlotLayout.of([("state", (4,), "<f4")])
EPOCH = 9


class Desk:
    """Peers on a selector, and what they were told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.selector = selectors.DefaultSelector()
        self.heard: list[tuple[Peer, GatewayMessage]] = []
        self.ended: list[Peer] = []
        self.peers = Peers(
            Listener(listen(name)),
            self.selector,
            lambda peer, message: self.heard.append((peer, message)),
            self.ended.append,
        )
        self.arena = Arena.create(ArenaGeometry(num_slots=2, slot_bytes=4096))
        self.links: list[WorkerLink] = []

    def dial(self) -> WorkerLink:
        self.links.append(WorkerLink(connect(self.name), self.arena, gateway="g", epoch=EPOCH))
        self.turn()  # accepts
        self.turn()  # hears the hello
        return self.links[-1]

    def turn(self) -> None:
        """Handle what is there now."""
        for key, mask in self.selector.select(0):
            key.data(mask)

    @property
    def only_peer(self) -> Peer:
        [peer] = self.peers
        return peer

    def close(self) -> None:
        self.peers.close("the test has ended")
        self.selector.close()
        for link in self.links:
            link.channel.close()
        self.arena.close()


@pytest.fixture
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    made = Desk(f"peers-{os.getpid()}-{request.node.name}"[:90])
    yield made
    made.close()


def test_a_gateway_is_known_by_its_hello(desk: Desk) -> None:
    desk.dial()

    [(peer, message)] = desk.heard

    assert isinstance(message, GatewayHello)
    assert peer.epoch == EPOCH
    assert list(desk.peers) == [peer]


def test_messages_come_with_who_said_them(desk: Desk) -> None:
    first, second = desk.dial(), desk.dial()
    desk.heard.clear()

    second.send(AskStats())
    first.send(Cancel(ref=SlotRef(EPOCH, 1, 1)))
    desk.turn()

    one, other = desk.peers
    assert set(desk.heard) == {(one, Cancel(ref=SlotRef(EPOCH, 1, 1))), (other, AskStats())}


def test_a_slot_is_seen_where_the_gateway_wrote_it_through_one_view(desk: Desk) -> None:
    desk.dial()
    ref = SlotRef(EPOCH, 1, 5)
    SlotView(desk.arena.slot(1), LAYOUT).stamp(ref)

    view = desk.only_peer.slot(ref, LAYOUT)

    assert view.holds(ref)
    assert desk.only_peer.slot(SlotRef(EPOCH, 1, 6), LAYOUT) is view
    assert desk.only_peer.slot(SlotRef(EPOCH, 0, 6), LAYOUT) is not view


def test_the_end_of_a_connection_is_told_once_and_its_drops_are_remembered(desk: Desk) -> None:
    link = desk.dial()
    peer = desk.only_peer
    link.send(Cancel(ref=SlotRef(EPOCH + 1, 1, 1)))

    link.channel.close()
    desk.turn()
    desk.turn()

    assert desk.ended == [peer]
    assert len(desk.peers) == 0
    assert desk.peers.num_dropped() == {Drop.EPOCH: 1}
    assert peer.epoch == EPOCH, "requests that came before the end are still looked at"


def test_a_row_that_was_seen_stays_readable_after_the_end_of_its_connection(desk: Desk) -> None:
    link = desk.dial()
    ref = SlotRef(EPOCH, 0, 1)
    SlotView(desk.arena.slot(0), LAYOUT).stamp(ref)
    view = desk.only_peer.slot(ref, LAYOUT)

    link.channel.close()
    desk.turn()

    assert view.holds(ref)


def test_who_breaks_the_rules_is_cut_off_and_the_others_are_heard(desk: Desk) -> None:
    good, bad = desk.dial(), desk.dial()
    desk.heard.clear()

    bad.channel.send(b"nonsense")
    good.send(AskStats())
    desk.turn()

    assert len(desk.ended) == 1
    assert [message for _, message in desk.heard] == [AskStats()]


def test_who_does_not_read_is_dropped(desk: Desk) -> None:
    desk.dial()
    peer = desk.only_peer
    chunk = Reply(
        ref=SlotRef(EPOCH, 0, 1),
        outcome=Outcome.SERVED,
        chunk=bytes(512 * 1024),
        shape=(1, 128 * 1024),
    )

    for _ in range(40):
        desk.peers.send(peer, chunk)

    assert desk.ended == [peer]
    assert not peer.link.channel.is_open


def test_what_waits_is_sent_as_soon_as_the_gateway_reads(desk: Desk) -> None:
    link = desk.dial()
    chunk = Reply(
        ref=SlotRef(EPOCH, 0, 1),
        outcome=Outcome.SERVED,
        chunk=bytes(512 * 1024),
        shape=(1, 128 * 1024),
    )
    for _ in range(4):
        desk.peers.send(desk.only_peer, chunk)
    received = 0

    while received < 4 and link.channel.is_open:
        desk.turn()
        received += len(link.receive())

    assert received == 4
    assert desk.only_peer.link.channel.backlog_bytes == 0


def test_nothing_is_said_to_who_has_gone(desk: Desk) -> None:
    link = desk.dial()
    peer = desk.only_peer
    link.channel.close()
    desk.turn()

    desk.peers.send(peer, Stats(counters={}))
    desk.peers.send_all(Stats(counters={}))

    assert desk.ended == [peer]


def test_a_connection_that_never_says_hello_is_just_there(desk: Desk) -> None:
    silent: Channel = connect(desk.name)
    desk.turn()

    assert len(desk.peers) == 1
    assert desk.heard == []
    silent.close()
