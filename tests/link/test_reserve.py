"""A process without file descriptors turns connections away instead of spinning."""

import errno
import os
import socket
from collections.abc import Callable

import pytest

from takt.link.reserve import AcceptReserve


class Waiting:
    """A listening socket with connections that wait, in a process with a limit."""

    def __init__(self, waiting: int, files_left: int) -> None:
        self.waiting = waiting
        self.files_left = files_left
        self.turned_away = 0

    def accept(self) -> tuple[socket.socket, object]:
        if not self.waiting:
            raise BlockingIOError(errno.EAGAIN, "nobody waits")
        if not self.files_left:
            raise OSError(errno.EMFILE, "too many open files")
        self.waiting -= 1
        self.turned_away += 1
        return socket.socket(), None


class OneSpare(AcceptReserve):
    """Gives a file descriptor to ``waiting`` for as long as the reserve is given up."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__()
        self.waits = waiting

    def close(self) -> None:
        super().close()
        self.waits.files_left += 1


def test_connections_are_handed_on_while_there_are_descriptors() -> None:
    waiting = Waiting(2, files_left=2)
    reserve = AcceptReserve()

    for _ in range(2):
        reserve.accept(waiting.accept)[0].close()

    with pytest.raises(BlockingIOError):
        reserve.accept(waiting.accept)
    reserve.close()


def test_without_descriptors_everybody_who_waits_is_turned_away_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiting = Waiting(5, files_left=0)
    reserve = OneSpare(waiting)

    for _ in range(3):
        with pytest.raises(BlockingIOError):
            reserve.accept(waiting.accept)
        waiting.files_left, waiting.waiting = 0, 2

    assert waiting.turned_away == 5 + 2 + 2
    assert len(caplog.records) == 1
    reserve.close()


def test_other_faults_of_a_listening_socket_are_passed_on() -> None:
    def broken() -> tuple[socket.socket, object]:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    reserve = AcceptReserve()
    with pytest.raises(OSError, match="Bad file descriptor"):
        reserve.accept(broken)
    reserve.close()


def test_a_reserve_may_be_closed_twice() -> None:
    reserve = AcceptReserve()
    close: Callable[[], None] = reserve.close

    close()
    close()
