"""Addresses without names, and peers of the same user only."""

import os
import socket

import pytest

from takt.errors import ConfigError
from takt.link import listener as listener_module
from takt.link.channel import PeerLostError
from takt.link.listener import Listener, connect, listen

pytestmark = pytest.mark.integration


def name_of(test: str) -> str:
    return f"test-{os.getpid()}-{test}"


def test_a_dialled_channel_reaches_the_listener() -> None:
    listener = Listener(listen(name_of("reach")))
    dialled = connect(name_of("reach"))
    [accepted] = listener.accept()

    dialled.send(b"hello")

    assert accepted.receive() == [b"hello"]
    for end in (dialled, accepted, listener):
        end.close()


def test_connections_queue_until_somebody_accepts_them() -> None:
    listening = listen(name_of("queue"))
    dialled = connect(name_of("queue"))
    dialled.send(b"sent before the worker was up")

    listener = Listener(listening)
    [accepted] = listener.accept()

    assert accepted.receive() == [b"sent before the worker was up"]
    for end in (dialled, accepted, listener):
        end.close()


def test_an_address_is_free_the_moment_its_owner_closes() -> None:
    listen(name_of("again")).close()

    listen(name_of("again")).close()


def test_an_address_in_use_is_the_operators_mistake() -> None:
    first = listen(name_of("taken"))

    with pytest.raises(ConfigError, match="Address already in use"):
        listen(name_of("taken"))

    first.close()


def test_an_address_nobody_listens_at_is_a_lost_peer() -> None:
    with pytest.raises(PeerLostError, match="refused"):
        connect(name_of("nobody"))


def test_nothing_is_left_in_the_file_system() -> None:
    listening = listen(name_of("nameless"))

    assert listening.getsockname() == b"\0takt/" + name_of("nameless").encode()

    listening.close()


def test_peers_of_another_user_are_refused_on_both_sides(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener(listen(name_of("stranger")))
    dialled = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    dialled.connect("\0takt/" + name_of("stranger"))
    monkeypatch.setattr(listener_module.os, "geteuid", lambda: os.getuid() + 1)

    accepted = listener.accept()
    with pytest.raises(PeerLostError, match="runs as user"):
        connect(name_of("stranger"))

    assert accepted == []
    assert listener.num_refused == 1
    assert "link connection refused" in caplog.text
    dialled.close()
    listener.close()
