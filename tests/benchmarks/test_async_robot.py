from collections.abc import Mapping

import numpy as np
import pytest
from benchmarks.client.async_robot import ARMS, GRIPPER, Conditions, hold, jerk_of, run_episode
from numpy.typing import NDArray

from takt.client.answer import ActionArray
from takt.units import ms

PERIOD = ms(50)
GRIP = 0.5


class Line:
    """An arm that must go ``length`` steps of one centimetre; it remembers what it was told."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.place = 0
        self.commands: list[NDArray[np.float64]] = []

    def observe(self) -> Mapping[str, object]:
        return {"place": self.place}

    def step(self, action: NDArray[np.float64]) -> bool:
        self.commands.append(np.array(action))
        self.place += int(action[0])
        return self.place >= self.length

    def position(self) -> NDArray[np.float64]:
        return np.array([self.place / 100.0, 0.0, 0.0])


def policy(seen: Mapping[str, object]) -> ActionArray:
    """Sixteen steps of one; the second component says where they were planned for."""
    first = seen["place"]
    assert isinstance(first, int)
    places = np.arange(first, first + 16)
    return np.stack([np.ones(16), places, np.zeros(16), np.full(16, GRIP)], axis=1)


def conditions(answer_ticks: float, most_ticks: int = 400) -> Conditions:
    return Conditions(
        period=PERIOD, answer=round(answer_ticks * PERIOD), network=0, most_ticks=most_ticks
    )


def test_sequential_inference_waits_one_answer_for_every_eight_actions() -> None:
    found = run_episode(Line(32), policy, ARMS["remote"], conditions(8))

    assert found["is_solved"]
    assert found["ticks"] == 4 * (8 + 8)
    assert found["executed"] == 32
    assert found["starved"] == 3 * 8
    assert found["inferences"] == 4


def test_a_robot_that_asks_in_time_waits_for_its_first_answer_alone() -> None:
    found = run_episode(Line(64), policy, ARMS["ours"], conditions(8))

    assert found["ticks"] == 8 + 64
    assert found["starved"] == 0


@pytest.mark.parametrize("arm", ["remote", "g0", "g0.3", "g0.5", "g0.7", "g0.9", "ours"])
@pytest.mark.parametrize("answer_ticks", [0.7, 1, 3.5, 8, 10])
def test_every_action_is_executed_where_it_was_planned_for(arm: str, answer_ticks: float) -> None:
    line = Line(60)

    run_episode(line, policy, ARMS[arm], conditions(answer_ticks))

    executed = [command for command in line.commands if command[0]]
    assert [int(command[1]) for command in executed] == list(range(60))


def test_an_arm_without_an_action_stands_still_keeps_its_grip_and_is_charged_its_time() -> None:
    line = Line(16)

    found = run_episode(line, policy, ARMS["remote"], conditions(8))

    assert len(line.commands) == found["ticks"]
    still = [command for command in line.commands[8:] if not command[0]]
    assert len(still) == found["starved"] == 8
    assert all(np.array_equal(command, hold(4, GRIP)) for command in still)
    assert hold(4, GRIP)[GRIPPER] == GRIP


def test_in_process_the_network_costs_nothing() -> None:
    with_network = Conditions(period=PERIOD, answer=8 * PERIOD, network=PERIOD, most_ticks=400)

    local = run_episode(Line(32), policy, ARMS["local"], with_network)
    remote = run_episode(Line(32), policy, ARMS["remote"], with_network)

    assert remote["ticks"] - local["ticks"] == 4


def test_an_episode_ends_in_environment_time_whatever_was_executed() -> None:
    found = run_episode(Line(1000), policy, ARMS["remote"], conditions(8, most_ticks=100))

    assert not found["is_solved"]
    assert found["ticks"] == 100
    assert len(found["queue"]) == 100


def test_a_quicker_answer_makes_our_rule_ask_less_and_a_threshold_as_often() -> None:
    asked = {
        (arm, ticks): run_episode(Line(160), policy, ARMS[arm], conditions(ticks))["inferences"]
        for arm in ("g0.7", "ours")
        for ticks in (8, 2)
    }

    assert abs(asked["ours", 8] - asked["g0.7", 8]) <= 1
    assert asked["ours", 2] <= 0.6 * asked["g0.7", 2]


def test_a_hand_that_speeds_up_evenly_has_no_jerk() -> None:
    times = np.arange(20) * 0.05
    places = [np.array([t**2, 0.0, -t]) for t in times]

    assert jerk_of(places, PERIOD) == pytest.approx(0.0, abs=1e-6)
    assert jerk_of([np.array([t**3, 0.0, 0.0]) for t in times], PERIOD) == pytest.approx(6.0)
    assert jerk_of(places[:3], PERIOD) == 0.0
