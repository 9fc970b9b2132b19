"""What stops a robot, how it comes to rest, and what makes it move again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.robot.rig import PERIOD, Robot, cause_of, holding, moving, stopped

from takt.robot.contract_table import Cause, State
from takt.units import ms


@given(t_stop=st.integers(20, 2000))
def test_a_hold_that_lasts_stops_and_calls_the_hook_once(t_stop: int) -> None:
    robot = holding(t_stop=ms(t_stop))
    held_since = robot.now

    directive = robot.until(State.STOPPED)
    later = [robot.tick() for _ in range(3)]

    assert held_since + ms(t_stop) <= robot.now - 3 * PERIOD < held_since + ms(t_stop) + PERIOD
    assert (directive.on_stop, cause_of(directive)) == (True, Cause.TIMEOUT)
    assert not any(d.on_stop or d.executes for d in later)


def test_without_t_stop_a_hold_lasts_for_ever() -> None:
    robot = holding(t_stop=None)
    robot.now += ms(10**9)

    assert robot.tick(None).state is State.HOLD


@pytest.mark.parametrize("robot", [Robot(), moving(), holding()], ids=["idle", "active", "hold"])
def test_somebody_stops_the_robot_from_every_state(robot: Robot) -> None:
    robot.contract.stop()

    directive = robot.tick()

    assert (directive.state, directive.executes, directive.on_stop) == (State.STOPPED, False, True)


def test_a_clock_that_goes_backwards_stops() -> None:
    robot = moving()
    robot.now -= ms(5000)

    assert cause_of(robot.tick()) is Cause.CLOCK


def test_chunks_rejected_in_a_row_stop() -> None:
    robot = moving(max_rejections=2)
    robot.contract.chunk_rejected()
    robot.contract.chunk_accepted()
    robot.contract.chunk_rejected()
    assert robot.tick().state is State.ACTIVE

    robot.contract.chunk_rejected()

    assert cause_of(robot.tick()) is Cause.REJECTED


def test_a_stop_is_known_before_its_tick() -> None:
    wished, rejected = moving(), moving(max_rejections=2)
    rejected.contract.chunk_rejected()
    assert (wished.contract.is_stopping, rejected.contract.is_stopping) == (False, False)

    wished.contract.stop()
    rejected.contract.chunk_rejected()

    for robot in (wished, rejected):
        assert robot.contract.is_stopping
        assert robot.tick().state is State.STOPPED


def test_only_a_reset_leaves_the_latch_and_only_a_start_moves_again() -> None:
    robot = stopped()
    robot.contract.start()
    robot.contract.resume()
    assert robot.tick().state is State.STOPPED

    robot.contract.reset()
    assert robot.tick().state is State.IDLE
    assert not robot.tick().executes

    robot.contract.start()
    assert robot.tick().executes


def test_a_reset_and_a_start_may_be_wished_at_once() -> None:
    robot = stopped()
    robot.contract.reset()
    robot.contract.start()

    assert [robot.tick().state, robot.tick().state] == [State.IDLE, State.ACTIVE]


def test_a_start_wished_before_the_reset_does_not_count() -> None:
    robot = stopped()
    robot.contract.start()
    robot.contract.reset()

    assert [robot.tick().state for _ in range(3)] == [State.IDLE] * 3


def test_a_reset_forgets_rejections() -> None:
    robot = moving(max_rejections=1)
    robot.contract.chunk_rejected()
    robot.until(State.STOPPED)
    robot.contract.reset()

    assert [robot.tick().state for _ in range(3)] == [State.IDLE] * 3


def test_a_stopped_robot_is_sent_no_pose() -> None:
    assert stopped().tick().command is None


def test_a_stopped_robot_is_ramped_down_and_sent_one_zero() -> None:
    robot = moving(hold_mode="velocity", deceleration=10.0)
    robot.tick(0.3)
    robot.contract.stop()

    commands = [robot.tick(0.3).command for _ in range(4)]

    assert [None if c is None else round(float(c[0]), 9) for c in commands] == [0.1, 0, None, None]


def test_motion_ends_with_a_flush() -> None:
    robot = moving()
    robot.contract.stop()

    assert robot.tick().flush


def test_the_last_of_several_wishes_in_one_tick_counts_when_it_is_a_stop() -> None:
    robot = stopped()
    robot.contract.reset()
    robot.contract.start()
    robot.contract.stop()

    assert robot.tick().state is State.STOPPED
    assert not robot.tick().executes


def test_a_reset_before_a_velocity_is_zero_goes_on_ramping_it_and_only_then_starts() -> None:
    robot = moving(hold_mode="velocity", deceleration=1.0)
    assert robot.tick(0.1).executes
    robot.contract.stop()
    robot.tick(0.1)
    robot.contract.reset()
    assert robot.tick(0.1).state is State.IDLE
    robot.contract.start()

    sent: list[float | None] = []
    while not (directive := robot.tick(0.1)).executes:
        command = directive.command
        sent.append(None if command is None else round(float(command[0]), 9))

    assert sent == [0.04, 0.02, 0.0, None]


def test_a_robot_is_at_rest_when_nothing_is_sent_any_more() -> None:
    robot = moving(hold_mode="velocity", deceleration=1.0)
    robot.tick(0.02)
    assert not robot.contract.is_at_rest
    robot.contract.stop()

    assert robot.tick().command is not None
    assert not robot.contract.is_at_rest
    assert robot.contract.time_to_rest == 0
    assert robot.tick().command is None
    assert robot.contract.is_at_rest
