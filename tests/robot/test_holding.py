"""A pose is held; a velocity is ramped to zero; a gripper keeps what it has."""

import numpy as np

from takt.robot.holding import HoldMotion
from takt.units import ms


def velocity(kept: tuple[int, ...] = ()) -> HoldMotion:
    return HoldMotion("velocity", deceleration=10.0, kept=kept)


def test_before_the_first_action_there_is_nothing_to_hold() -> None:
    hold = velocity()
    hold.slow_down(ms(20))

    assert hold.command is None
    assert hold.is_settled
    assert hold.is_done


def test_a_pose_is_held_as_it_was_commanded() -> None:
    hold = HoldMotion("position", deceleration=None, kept=())
    pose = np.array([1.0, 2.0])
    hold.executed(pose)
    hold.slow_down(ms(500))

    assert hold.command is pose
    assert hold.is_settled
    assert hold.is_done


def test_a_velocity_is_ramped_to_zero_from_either_side_and_stays_there() -> None:
    hold = velocity()
    hold.executed(np.array([0.5, -0.3]))
    seen: list[list[float]] = []
    for _ in range(4):
        hold.slow_down(ms(20))
        assert hold.command is not None
        seen.append([round(float(v), 9) for v in hold.command])

    assert seen == [[0.3, -0.1], [0.1, 0], [0, 0], [0, 0]]


def test_a_ramp_is_done_when_its_zero_was_sent() -> None:
    hold = velocity()
    hold.executed(np.array([0.1]))

    hold.slow_down(ms(20))
    assert (hold.is_settled, hold.is_done) == (True, False)  # the zero is the command now
    hold.slow_down(ms(20))
    assert hold.is_done
    hold.executed(np.array([0.1]))
    assert not hold.is_done


def test_a_kept_component_is_not_ramped() -> None:
    hold = velocity(kept=(1,))
    hold.executed(np.array([0.1, 0.8]))
    hold.slow_down(ms(500))

    assert hold.command is not None
    assert hold.command.tolist() == [0, 0.8]
    assert hold.is_settled


def test_a_ramp_does_not_write_to_the_action() -> None:
    action = np.array([1.0])
    hold = velocity()
    hold.executed(action)
    hold.slow_down(ms(20))

    assert action.tolist() == [1.0]


def test_a_robot_moved_by_hand_has_nothing_to_hold() -> None:
    hold = HoldMotion("position", deceleration=None, kept=())
    hold.executed(np.array([1.0]))
    hold.forget()

    assert hold.command is None


def test_a_velocity_is_forgotten_only_once_its_zero_was_sent() -> None:
    hold = velocity()
    hold.executed(np.array([0.3]))
    hold.forget()
    seen: list[object] = []
    for _ in range(3):
        hold.slow_down(ms(20))
        seen.append(None if hold.command is None else round(float(hold.command[0]), 9))

    assert seen == [0.1, 0.0, None]


def test_a_velocity_that_follows_a_forgotten_one_is_held() -> None:
    hold = velocity()
    hold.executed(np.array([0.3]))
    hold.forget()
    hold.executed(np.array([0.1]))
    for _ in range(3):
        hold.slow_down(ms(20))

    assert hold.command is not None
    assert hold.is_done


def test_the_time_to_rest_is_that_of_the_joint_that_takes_longest() -> None:
    hold = HoldMotion("velocity", deceleration=(10.0, 1.0, 1.0), kept=(2,))
    assert hold.time_to_rest == 0
    hold.executed(np.array([1.0, -0.5, 7.0]))

    assert hold.time_to_rest == ms(500)
