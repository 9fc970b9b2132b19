"""A robot that describes itself is driven only by a model that is made for it."""

from dataclasses import replace

import pytest
from tests.client.live import FAST, PATIENCE, SOON, still, until
from tests.client.rig import FakeRobot

from takt.client.in_process import InProcess
from takt.client.loop import ControlLoop
from takt.client.robots.described import Axis, RobotDescription
from takt.policies.echo import EchoOptions, echo_spec
from takt.robot.contract_table import State
from takt.schema.spec import ActionSpec, AxisSpec

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


class NamedRobot(FakeRobot):
    """Tells names that are given to it."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def describe(self) -> RobotDescription:
        return RobotDescription(action=tuple(map(Axis, self.names)))


class CardedPolicy(InProcess):
    """A policy with a card, as a server has one."""

    def __init__(self, *names: str) -> None:
        super().__init__(still)
        self.spec = replace(
            echo_spec("arm", EchoOptions()),
            action=ActionSpec(
                action_dim=len(names),
                model_action_dim=len(names),
                horizon=20,
                execution_horizon=20,
                axes=tuple(AxisSpec(name=name) for name in names),
            ),
            sizes_are_maxima=False,
        )
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_model_of_another_robot_moves_nothing_and_the_failure_names_both() -> None:
    policies: list[CardedPolicy] = []

    def dial() -> CardedPolicy:
        policies.append(CardedPolicy("elbow", "shoulder"))
        return policies[-1]

    with ControlLoop(NamedRobot("shoulder", "elbow"), dial, FAST, backoff=SOON) as loop:
        loop.start()
        until(lambda: loop.status().failures.get("features", 0) >= 2)

        status = loop.status()
        assert (status.state, status.executed, status.answered) == (State.IDLE, 0, 0)
        assert status.last_failure is not None
        assert "'shoulder' at place 0, the model 'elbow'" in status.last_failure
        assert not status.is_connected
    assert all(policy.is_closed for policy in policies)


def test_a_described_robot_moves_by_the_model_that_is_made_for_it() -> None:
    robot = NamedRobot("shoulder", "elbow")
    with ControlLoop(robot, lambda: CardedPolicy("shoulder", "elbow"), FAST) as loop:
        loop.start()

        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)


def test_a_server_that_tells_nothing_drives_a_described_robot() -> None:
    with ControlLoop(NamedRobot("shoulder", "elbow"), lambda: InProcess(still), FAST) as loop:
        loop.start()

        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
