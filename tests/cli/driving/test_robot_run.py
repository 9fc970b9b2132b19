from dataclasses import replace
from multiprocessing import Pipe

from tests.cli.driving.fakes import answer, behaviour

from takt.cli.driving.figures import figures_of
from takt.cli.driving.outage import Outage
from takt.cli.driving.robot import DrivenRobot
from takt.cli.driving.robot_run import RobotRun
from takt.units import ms


def run(name: str = "robot-1") -> RobotRun:
    """One answer within the slo, and one connection that is lost."""
    robot = DrivenRobot(name, behaviour(), origin=0, end=ms(200))
    came = replace(answer(), sent_bytes=300, raw_bytes=900)
    robot.answered(robot.ask(0), came, ms(5), is_own=True)
    robot.failed(robot.ask(ms(100)), "closed", "closed", ms(160), is_lost=True)
    robot.finish(ms(200))
    return RobotRun.of(robot)


def test_what_a_robot_did_travels_to_another_process() -> None:
    here, there = Pipe()

    here.send(run())

    assert there.recv() == run()


def test_a_robots_runs_are_joined_and_robots_are_not() -> None:
    one, other = RobotRun.joined([run(), run("robot-2"), run()])

    assert (one.name, other.name) == ("robot-1", "robot-2")
    assert (len(one.records), len(other.records)) == (4, 2)
    assert one.errors == {"closed": 2}
    assert one.outages == [Outage(since=ms(100))] * 2
    assert len(one.splits) == len(one.stages) == 2
    assert one.ticks == 2 * other.ticks
    assert (one.sent_bytes, one.raw_bytes) == (600, 1800)


def test_figures_are_those_of_the_robots() -> None:
    figures = figures_of([run(), run("robot-2")], duration=ms(200), seed=0)

    assert (figures["robots"], figures["issued"], figures["attainment"]) == (2, 4, 0.5)
