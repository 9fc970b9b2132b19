"""Where a door listens, and what it says when it cannot."""

import socket

import pytest

from takt.doors.listening import listen_on

pytestmark = pytest.mark.integration

BACKLOG = 4


def test_a_free_port_is_taken_and_connections_are_accepted() -> None:
    [listening] = listen_on("127.0.0.1", 0, BACKLOG)
    host, port = listening.getsockname()

    with socket.create_connection((host, port), 10):
        accepted, _ = listening.accept()

    accepted.close()
    listening.close()


def test_every_address_of_a_name_has_the_same_port() -> None:
    sockets = listen_on("localhost", 0, BACKLOG)

    assert len({listening.getsockname()[1] for listening in sockets}) == 1
    for listening in sockets:
        listening.close()


@pytest.mark.parametrize(
    ("host", "port", "fault"),
    [
        ("192.0.2.1", 0, OSError),  # of no network: RFC 5737
        ("no.such.name.invalid", 0, OSError),
        ("a" * 70 + ".invalid", 0, UnicodeError),
        ("127.0.0.1", 99_999, OverflowError),
        ("127.0.0.1", -1, OverflowError),
    ],
)
def test_an_impossible_place_is_refused(host: str, port: int, fault: type[Exception]) -> None:
    with pytest.raises(fault):
        listen_on(host, port, BACKLOG)


def test_a_taken_port_is_refused() -> None:
    [listening] = listen_on("127.0.0.1", 0, BACKLOG)

    with pytest.raises(OSError, match="Address already in use"):
        listen_on("127.0.0.1", listening.getsockname()[1], BACKLOG)

    listening.close()
