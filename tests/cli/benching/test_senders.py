"""Directing processes: each is a pipe whose messages are scripted."""

import os
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from tests.cli.benching.made import run

from takt.cli.benching.sender import Broken, Epoch, Progress, Ready, Sent
from takt.cli.benching.senders import BenchFailedError, Senders, processes_for
from takt.testing import ManualClock
from takt.units import MILLISECOND, SECOND

ORDER = Epoch(3, 0, SECOND)


class Process:
    """Says what was written down; an exception at the end of it when it has ended."""

    def __init__(self, *says: object) -> None:
        self.says = deque(says)
        self.told: list[object] = []

    def send(self, obj: Any, /) -> None:  # noqa: ANN401
        if self.says and isinstance(self.says[0], Broken | EOFError):
            raise BrokenPipeError
        self.told.append(obj)

    def recv(self) -> Any:  # noqa: ANN401
        said = self.says.popleft()
        if isinstance(said, Exception):
            raise said
        return said

    def close(self) -> None: ...


def sent(*names: str) -> Sent:
    return Sent([run(name, 5) for name in names], 0, 0, SECOND)


def directed(*processes: Process) -> Senders:
    def wait(links: Sequence[Process], timeout: float) -> Iterable[Process]:
        return [link for link in links if link.says]

    return Senders(processes, wait=wait, clock=ManualClock(SECOND).now)


def test_processes_start_together_once_all_are_ready() -> None:
    one, two = Process(Ready(1), sent("a")), Process(Ready(1), sent("b"))

    directed(one, two).run(ORDER)

    assert one.told == two.told == [ORDER, SECOND + 100 * MILLISECOND]


def test_what_came_is_in_the_order_of_the_processes() -> None:
    late = Process(Ready(1), Progress(1, 0, 0), Progress(1, 1, 1), sent("a"))

    found = directed(late, Process(Ready(1), sent("b"))).run(ORDER)

    assert [part.runs[0].name for part in found] == ["a", "b"]


def test_progress_is_that_of_all_processes() -> None:
    one = Process(Ready(1), Progress(4, 3, 2), Progress(6, 5, 4), sent("a"))
    two = Process(Ready(1), Progress(10, 10, 10), sent("b"))
    told: list[Progress] = []

    directed(one, two).run(ORDER, told.append)

    assert told[-1] == Progress(16, 15, 14)


def test_a_process_that_cannot_go_on_says_why() -> None:
    with pytest.raises(BenchFailedError, match="wrong token"):
        directed(Process(Ready(1)), Process(Broken("wrong token"))).run(ORDER)


def test_a_process_that_has_ended_is_noticed() -> None:
    with pytest.raises(BenchFailedError, match="has ended"):
        directed(Process(EOFError())).run(ORDER)


def test_silence_of_all_processes_has_an_end() -> None:
    with pytest.raises(BenchFailedError, match="said nothing for 120 s"):
        directed(Process()).run(ORDER)


@pytest.mark.parametrize(("robots", "processes"), [(1, 1), (16, 1), (17, 2), (64, 4), (500, 4)])
def test_robots_are_divided_among_no_more_processes_than_cores(
    robots: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})

    assert processes_for(robots) == processes
