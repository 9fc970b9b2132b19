"""Commands between two actions: straight, never beyond, every action itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from takt.errors import ConfigError, UsageError
from takt.robot.interpolation import ActionInterpolator


def action(*values: float) -> NDArray[np.float64]:
    return np.array(values)


def commands(
    interpolator: ActionInterpolator, *actions: NDArray[np.float64], speed: float = 1.0
) -> list[NDArray[np.float64]]:
    sent: list[NDArray[np.float64]] = []
    for following in actions:
        interpolator.add(following)
        while not interpolator.needs_action:
            sent.append(interpolator.next(speed))
    return sent


def test_four_commands_per_action_lie_on_a_straight_line() -> None:
    sent = commands(ActionInterpolator(4), action(0), action(4), action(0))

    assert [float(command[0]) for command in sent] == [0, 1, 2, 3, 4, 3, 2, 1, 0]


@given(st.integers(1, 12), st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8))
def test_every_action_is_sent_itself_at_its_place(multiplier: int, values: list[float]) -> None:
    actions = [action(value) for value in values]

    sent = commands(ActionInterpolator(multiplier), *actions)

    assert len(sent) == 1 + (len(actions) - 1) * multiplier
    assert all(sent[i * multiplier] is a for i, a in enumerate(actions))


def test_a_multiplier_of_one_sends_the_actions_and_nothing_else() -> None:
    actions = [action(1), action(5), action(2)]

    sent = commands(ActionInterpolator(), *actions)

    assert [id(command) for command in sent] == [id(a) for a in actions]


def test_a_gripper_does_not_move_half_way() -> None:
    sent = commands(ActionInterpolator(2, stepped=(1,)), action(0, 0), action(1, 1))

    assert [command.tolist() for command in sent] == [[0, 0], [0.5, 0], [1, 1]]


@given(st.integers(1, 6), st.integers(1, 1000))
def test_at_a_share_of_the_speed_an_action_takes_so_much_longer(
    multiplier: int, thousandths: int
) -> None:
    sent = commands(ActionInterpolator(multiplier), action(0), action(1), speed=thousandths / 1000)

    assert len(sent) == 1 + -(-multiplier * 1000 // thousandths)
    assert (np.diff([float(command[0]) for command in sent]) > 0).all()


def test_at_no_speed_the_robot_stands_still() -> None:
    interpolator = ActionInterpolator(2)
    commands(interpolator, action(0))
    interpolator.add(action(1))

    assert [float(interpolator.next(0)[0]) for _ in range(5)] == [0] * 5
    assert not interpolator.needs_action


def test_after_a_reset_the_next_action_is_sent_at_once() -> None:
    interpolator = ActionInterpolator(4)
    commands(interpolator, action(0))
    interpolator.add(action(1))
    interpolator.reset()

    assert interpolator.needs_action
    interpolator.add(action(9, 9))
    assert interpolator.next().tolist() == [9, 9]


def test_misuse_is_refused() -> None:
    interpolator = ActionInterpolator(2)
    with pytest.raises(UsageError, match="there is no action to send"):
        interpolator.next()
    interpolator.add(action(1))
    with pytest.raises(UsageError, match="before the last one was sent"):
        interpolator.add(action(1))
    with pytest.raises(UsageError, match=r"speed must lie in \[0, 1\]"):
        interpolator.next(1.5)
    interpolator.next()
    with pytest.raises(UsageError, match="an action of shape"):
        interpolator.add(action(1, 2))


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="multiplier must be at least 1"):
        ActionInterpolator(0)
    with pytest.raises(ConfigError, match="stepped must be distinct positions"):
        ActionInterpolator(2, stepped=(-1,))


def test_after_a_reset_that_says_where_the_robot_is_it_sets_out_from_there() -> None:
    interpolator = ActionInterpolator(2)
    interpolator.reset(np.array([0.0]))
    interpolator.add(np.array([1.0]))

    assert [float(interpolator.next()[0]) for _ in range(2)] == [0.5, 1.0]
