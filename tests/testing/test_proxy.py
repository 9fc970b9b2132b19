import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from takt.testing import LoopbackProxy
from takt.testing.proxy import frames_in

TIMEOUT_S = 60.0


def frame_of(payload: bytes) -> bytes:
    return Frame(Opcode.BINARY, payload).serialize(mask=False)


@given(st.lists(st.integers(0, 70_000), max_size=5), st.integers(0, 1_000_000))
def test_frames_are_cut_where_they_end(sizes: list[int], where: int) -> None:
    frames = [frame_of(bytes(size)) for size in sizes]
    data = b"".join(frames)
    cut = where % (len(data) + 1)

    first, rest = frames_in(data[:cut])
    second, left = frames_in(rest + data[cut:])

    assert (first + second, left) == (frames, b"")


@contextmanager
def speaker(said: bytes) -> Iterator[str]:
    """A server that says something, then says back what it hears; one connection at a time."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                try:
                    peer.sendall(said)
                    while data := peer.recv(4096):
                        peer.sendall(data)
                except OSError:
                    continue

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        host, port = listener.getsockname()
        yield f"{host}:{port}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def dial(proxy: LoopbackProxy) -> socket.socket:
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def heard(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := peer.recv(size - len(data))):
        data += more
    return data


@pytest.mark.integration
def test_bytes_pass_in_both_directions() -> None:
    with speaker(b"hello") as server, LoopbackProxy(server) as proxy:
        with closing(dial(proxy)) as peer:
            peer.sendall(b" you")

            assert heard(peer, 9) == b"hello you"
        assert proxy.connections == 1


@pytest.mark.integration
def test_late_bytes_keep_their_order() -> None:
    with speaker(b"") as server, LoopbackProxy(server) as proxy, closing(dial(proxy)) as peer:
        for number in range(20):
            proxy.delay((20 - number) * 1_000_000)
            peer.sendall(bytes([number]))

        assert heard(peer, 20) == bytes(range(20))


@pytest.mark.integration
def test_a_cut_ends_connections_old_and_new_until_it_is_restored() -> None:
    with speaker(b"hello") as server, LoopbackProxy(server) as proxy:
        with closing(dial(proxy)) as peer:
            heard(peer, 5)
            proxy.cut()
            with pytest.raises(ConnectionResetError):
                peer.recv(1)
        with pytest.raises(ConnectionResetError), closing(dial(proxy)) as peer:
            peer.recv(1)
        proxy.restore()

        with closing(dial(proxy)) as peer:
            assert heard(peer, 5) == b"hello"


@pytest.mark.integration
def test_silence_loses_what_is_sent_and_the_connection_with_it() -> None:
    with (
        speaker(b"hello") as server,
        LoopbackProxy(server) as proxy,
        closing(dial(proxy)) as peer,
    ):
        heard(peer, 5)
        proxy.silence()
        peer.sendall(b"lost")
        peer.settimeout(0.05)
        with pytest.raises(TimeoutError):
            peer.recv(1)
        peer.settimeout(TIMEOUT_S)
        proxy.restore()

        with pytest.raises(ConnectionResetError):
            peer.recv(1)


@pytest.mark.integration
def test_answers_are_repeated_dropped_and_reordered_as_the_rule_says() -> None:
    greeting, one, two = frame_of(b"greeting"), frame_of(b"one"), frame_of(b"two")
    kept: list[bytes] = []

    def edit(number: int, frame: bytes) -> list[bytes]:
        if number == 0:
            return []
        kept.append(frame)
        return kept[::-1] * 2 if number == 2 else []

    said = b"HTTP/1.1 101\r\n\r\n" + greeting + one + two
    expected = b"HTTP/1.1 101\r\n\r\n" + (two + one) * 2
    with (
        speaker(said) as server,
        LoopbackProxy(server, edit_answers=edit) as proxy,
        closing(dial(proxy)) as peer,
    ):
        assert heard(peer, len(expected)) == expected
