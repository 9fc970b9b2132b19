"""A process of a benchmark, run in the test's own: orders are scripted, the crew is a fake."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.cli.driving.fakes import answer, behaviour

from takt.cli.benching.sender import Epoch, Progress, Ready, Sender, Sent
from takt.cli.driving.crew import Plan
from takt.cli.driving.robot import DrivenRobot
from takt.testing import ManualClock
from takt.units import SECOND, Nanos, ms


class ScriptedLink:
    """Says what was written down, and keeps what it is told."""

    def __init__(self, *script: object) -> None:
        self.script = deque(script)
        self.told: list[Any] = []

    def recv(self) -> Any:  # noqa: ANN401
        if not self.script:
            raise EOFError
        return self.script.popleft()

    def send(self, obj: Any, /) -> None:  # noqa: ANN401
        self.told.append(obj)


class OneRobotCrew:
    """A crew whose robot asks once and is answered after 10 ms, while somebody looks."""

    def __init__(self, clock: ManualClock, order: dict[str, Any], start: Nanos) -> None:
        self.start = start
        self.clock = clock
        counted = start + order["warm_up"]
        end = counted + order["duration"]
        self.robots = [
            DrivenRobot("robot-1", behaviour(), origin=start, end=end, counted_from=counted)
        ]

    def run(self, look: Callable[[], None], every: Nanos) -> None:
        (robot,) = self.robots
        sent = robot.next_ask or 0
        robot.answered(robot.ask(sent), answer(), sent + ms(10), is_own=True)
        self.clock.advance(ms(500))
        look()
        robot.finish(self.clock.now())


class Rig:
    def __init__(self, *script: object) -> None:
        self.clock = ManualClock()
        self.link = ScriptedLink(*script)
        self.orders: list[dict[str, Any]] = []
        self.sender = Sender(
            [],
            self.link,
            assemble=self.assemble,
            clock=self.clock.now,
            cpu_clock=lambda: self.clock.now() // 5,
        )

    def assemble(self, plans: Sequence[Plan], **order: Any) -> OneRobotCrew:  # noqa: ANN401
        self.orders.append(order)
        return OneRobotCrew(self.clock, order, order["begin"]())


ONE, TWO = Epoch(7, 0, SECOND), Epoch(8, 0, SECOND)


def test_a_process_is_ready_starts_when_told_and_gives_what_its_robots_got() -> None:
    rig = Rig(ONE, 0, None)

    rig.sender.serve()

    ready, progress, sent = rig.link.told
    assert ready == Ready(0)
    assert progress == Progress(issued=1, answered=1, met=1)
    assert isinstance(sent, Sent)
    assert [record.latency for record in sent.runs[0].records] == [ms(10), None, None, None, None]


def test_each_order_has_a_seed_of_its_own() -> None:
    rig = Rig(ONE, 0, TWO, SECOND, None)

    rig.sender.serve()

    assert [order["seed"] for order in rig.orders] == [7, 8]


def test_a_process_measures_what_it_used_itself() -> None:
    rig = Rig(ONE, 0, None)

    rig.sender.serve()

    sent = rig.link.told[-1]
    assert (sent.cpu, sent.wall) == (ms(100), ms(500))


def test_time_counts_from_the_end_of_the_warm_up() -> None:
    rig = Rig(Epoch(0, 2 * SECOND, SECOND), 5 * SECOND, None)

    rig.sender.serve()

    assert rig.link.told[-1].start == 7 * SECOND
    assert rig.link.told[-1].runs[0].records == []


def test_a_pipe_that_ends_ends_the_process() -> None:
    with pytest.raises(EOFError):
        Rig(ONE).sender.serve()
