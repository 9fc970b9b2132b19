"""Whole messages, bounds, descriptors, and what a peer said before it went. Uses a socket pair."""

import os
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import LimitError, UsageError, WireError
from takt.link.channel import BacklogError, Channel, PeerLostError
from takt.link.messages import LINK_VERSION


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    left, right = socket.socketpair()
    ours, theirs = Channel(left), Channel(right, accept_fd=True)
    yield ours, theirs
    ours.close()
    theirs.close()


def frame(body: bytes, *, magic: bytes = b"TK", version: int = LINK_VERSION) -> bytes:
    return struct.pack("<2sBBI", magic, version, 0, len(body)) + body


def test_messages_arrive_whole_and_in_order(pair: tuple[Channel, Channel]) -> None:
    ours, theirs = pair

    for body in (b"one", b"", b"three" * 1000):
        ours.send(body)

    assert theirs.receive() == [b"one", b"", b"three" * 1000]
    assert theirs.receive() == []


@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_a_stream_cut_anywhere_gives_the_same_messages(
    bodies: list[bytes], data: st.DataObject
) -> None:
    left, right = socket.socketpair()
    channel = Channel(right)
    stream, got = b"".join(frame(body) for body in bodies), []
    try:
        while stream:
            cut = data.draw(st.integers(1, len(stream)))
            left.sendall(stream[:cut])
            got += channel.receive()
            stream = stream[cut:]
    finally:
        left.close()
        channel.close()

    assert got == bodies


def test_a_peer_that_does_not_read_fills_a_bounded_backlog_and_loses_nothing(
    pair: tuple[Channel, Channel],
) -> None:
    ours, theirs = pair
    needs: list[bool] = []
    ours.on_backlog = needs.append
    body, sent = bytes(1_000_000), 0

    while ours.backlog_bytes + len(body) <= 8 * 1024 * 1024:
        ours.send(body)
        sent += 1
    with pytest.raises(BacklogError, match="has not read"):
        ours.send(body)
    received = 0
    while received < sent:
        received += len(theirs.receive())
        ours.flush()

    assert needs == [True, False]
    assert ours.backlog_bytes == 0
    assert theirs.receive() == []


def test_one_peer_may_not_hold_the_loop(pair: tuple[Channel, Channel]) -> None:
    ours, theirs = pair
    for _ in range(200):
        ours.send(bytes(4000))

    first = len(theirs.receive())

    assert 0 < first < 200
    rest = 0
    while first + rest < 200:
        ours.flush()
        rest += len(theirs.receive())


def test_what_a_peer_said_before_it_went_is_delivered(pair: tuple[Channel, Channel]) -> None:
    ours, theirs = pair
    ours.send(b"last words")
    ours.close()
    theirs.send(b"too late")

    messages = theirs.receive()
    theirs.receive()

    assert messages == [b"last words"]
    assert theirs.end_reason is not None
    assert "peer" in theirs.end_reason


def test_a_peer_that_goes_in_the_middle_of_a_message_ends_the_channel() -> None:
    left, right = socket.socketpair()
    channel = Channel(right)
    left.sendall(frame(b"whole") + frame(b"half")[:-2])
    left.close()

    messages = channel.receive() + channel.receive()

    assert messages == [b"whole"]
    assert not channel.is_open


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (frame(b"x", magic=b"GE"), "link version"),
        (frame(b"x", version=LINK_VERSION + 1), "link version"),
        (struct.pack("<2sBBI", b"TK", LINK_VERSION, 0, 2**32 - 1), "limit is"),
    ],
    ids=["magic", "version", "length"],
)
def test_what_is_no_frame_ends_the_channel_after_the_messages_before(
    sent: bytes, reason: str
) -> None:
    left, right = socket.socketpair()
    channel = Channel(right)
    left.sendall(frame(b"good") + sent)

    messages = channel.receive()
    left.close()

    assert messages == [b"good"]
    assert channel.end_reason is not None
    assert reason in channel.end_reason


def test_too_long_a_message_is_not_sent(pair: tuple[Channel, Channel]) -> None:
    ours, theirs = pair

    with pytest.raises(LimitError, match="limit is 4194304"):
        ours.send(bytes(4 * 1024 * 1024 + 1))

    assert theirs.receive() == []


def test_nothing_can_be_sent_over_a_closed_channel(pair: tuple[Channel, Channel]) -> None:
    ours, _ = pair
    ours.close("drained")
    ours.close("again")

    with pytest.raises(PeerLostError, match="drained"):
        ours.send(b"x")


def test_flushing_to_a_lost_peer_gives_up_the_backlog(pair: tuple[Channel, Channel]) -> None:
    ours, theirs = pair
    while not ours.backlog_bytes:
        ours.send(bytes(1_000_000))
    theirs.close()

    ours.flush()

    assert ours.backlog_bytes == 0


def test_a_descriptor_travels_beside_the_first_message(pair: tuple[Channel, Channel]) -> None:
    ours, theirs = pair
    reading, writing = os.pipe()
    ours.send(b"hello", fds=[writing])
    os.close(writing)

    theirs.receive()
    received = theirs.take_fd()
    os.write(received, b"through")
    os.close(received)

    assert os.read(reading, 10) == b"through"
    os.close(reading)
    with pytest.raises(WireError, match="got none"):
        theirs.take_fd()


def test_a_received_descriptor_does_not_leak_into_children(
    pair: tuple[Channel, Channel],
) -> None:
    ours, theirs = pair
    ours.send(b"hello", fds=[0])

    theirs.receive()
    received = theirs.take_fd()

    assert not os.get_inheritable(received)
    os.close(received)


def test_descriptors_nobody_asked_for_do_not_pile_up() -> None:
    left, right = socket.socketpair()
    before = len(os.listdir("/proc/self/fd"))
    channel = Channel(right, accept_fd=True)

    socket.send_fds(left, [frame(b"hello")], [0, 0, 0])
    messages = channel.receive()
    socket.send_fds(left, [frame(b"more")], [0])
    messages += channel.receive()

    assert messages == [b"hello", b"more"]
    assert len(os.listdir("/proc/self/fd")) == before + 1
    channel.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1
    left.close()


def test_later_messages_carry_no_descriptor(pair: tuple[Channel, Channel]) -> None:
    ours, _ = pair
    ours.send(b"hello")

    with pytest.raises(UsageError, match="first message"):
        ours.send(b"more", fds=[0])
