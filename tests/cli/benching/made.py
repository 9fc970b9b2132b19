"""Epochs of the tests of this folder, made without a server."""

from collections.abc import Sequence

from tests.cli.driving.fakes import answer, behaviour

from takt.cli.benching.figures import EpochResult
from takt.cli.benching.sender import Sent
from takt.cli.driving.robot import DrivenRobot
from takt.cli.driving.robot_run import RobotRun
from takt.units import SECOND, Nanos, ms

START: Nanos = 3 * SECOND
GONE = -1


def run(name: str, *latencies: int | None, model: str = "echo") -> RobotRun:
    """A robot answered after so many milliseconds, of a slo of 50.

    None: it was refused; GONE: there was no server.
    """
    end = START + ms(100 * len(latencies))
    robot = DrivenRobot(name, behaviour(model=model), origin=START, end=end)
    for number, latency in enumerate(latencies):
        sent = START + ms(100 * number)
        ask = robot.ask(sent)
        if latency is None:
            robot.failed(ask, "expired", "expired", sent + ms(60))
        elif latency == GONE:
            robot.failed(ask, "unreachable", "unreachable", sent, is_lost=True)
        else:
            robot.answered(ask, answer(), sent + ms(latency), is_own=True)
    robot.finish(end)
    return RobotRun.of(robot)


def epoch(
    *runs: RobotRun, seed: int = 0, cpu: Sequence[Nanos] = (SECOND // 10,), wall: Nanos = SECOND
) -> EpochResult:
    """An epoch of as many processes as there are processor times, the first with all robots."""
    parts = [
        Sent(runs=[*runs] if place == 0 else [], start=START, cpu=used, wall=wall)
        for place, used in enumerate(cpu)
    ]
    return EpochResult(seed=seed, parts=parts)
