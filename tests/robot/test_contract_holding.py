"""Degrading, holding and resuming: what a robot does between its last action and the next."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.robot.rig import PERIOD, cause_of, holding, moving

from takt.robot.contract import LateServerContract, Proposal
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import Cause, State
from takt.units import ms


def test_an_overdue_answer_degrades_and_valid_actions_are_still_executed() -> None:
    robot = moving(degraded_speed=0.5)

    late = robot.tick(is_overdue=True)
    recovered = robot.tick()

    assert (late.state, late.executes, late.speed) == (State.DEGRADED, True, 0.5)
    assert cause_of(late) is Cause.OVERDUE
    assert (recovered.state, recovered.speed) == (State.ACTIVE, 1.0)
    assert cause_of(recovered) is Cause.RECOVERED


def test_a_dry_queue_degrades_and_an_action_within_t_hold_goes_on() -> None:
    robot = moving()

    dry = robot.tick(None)
    on = robot.tick(3.0)

    assert (dry.state, dry.executes, cause_of(dry)) == (State.DEGRADED, False, Cause.DRY)
    assert (on.state, on.executes) == (State.ACTIVE, True)


def test_a_stale_action_is_not_executed_and_flushed() -> None:
    robot = moving(max_action_age=ms(300))
    assert robot.tick(age=ms(300)).executes

    stale = robot.tick(age=ms(300) + 1)

    assert (stale.executes, stale.flush, cause_of(stale)) == (False, True, Cause.STALE)


def test_an_action_observed_in_the_future_is_not_executed() -> None:
    assert not moving().tick(age=-1).executes


@given(t_hold=st.integers(20, 700), lack=st.sampled_from(["dry", "stale"]))
def test_hold_is_entered_within_t_hold_of_the_last_valid_action(t_hold: int, lack: str) -> None:
    robot = moving(t_hold=ms(t_hold), max_action_age=ms(100))
    last_valid = robot.now
    assert robot.contract.hold_by == last_valid + ms(t_hold)

    value, age = (None, 0) if lack == "dry" else (0.0, ms(101))
    directive = robot.until(State.HOLD, value, age=age)

    assert robot.now <= last_valid + ms(t_hold)
    assert robot.now + PERIOD > last_valid + ms(t_hold)
    assert cause_of(directive) is Cause.NO_ACTION
    assert directive.flush
    assert robot.contract.hold_by is None


def test_the_last_commanded_pose_is_held_from_the_first_tick_without_an_action_on() -> None:
    robot = moving()
    robot.tick(0.7, pose=0.6)

    commands = [robot.tick(None, pose=0.5).command for _ in range(100)]

    assert [float(c[0]) for c in commands if c is not None] == [0.7] * 100
    assert robot.contract.state is State.HOLD


def test_a_velocity_is_ramped_from_the_first_tick_without_an_action_on() -> None:
    robot = moving(hold_mode="velocity", deceleration=10.0)
    robot.tick(0.5)

    commands = [robot.tick(None).command for _ in range(4)]

    assert [round(float(c[0]), 9) for c in commands if c is not None] == [0.3, 0.1, 0, 0]


def test_the_gripper_keeps_its_state_while_a_velocity_is_ramped() -> None:
    contract = LateServerContract(
        ContractRules(hold_mode="velocity", deceleration=1.0, kept=(1,), resume_ramp=0),
        control_period=PERIOD,
    )
    contract.start()
    contract.tick(0, proposal=Proposal(values=np.array([0.01, 0.8]), observed=0))

    directive = contract.tick(PERIOD, proposal=None)

    assert directive.command is not None
    assert directive.command.tolist() == [0, 0.8]


def test_a_released_button_holds_at_once() -> None:
    robot = moving()

    directive = robot.tick(is_enabled=False)

    assert (directive.state, directive.executes, cause_of(directive)) == (
        State.HOLD,
        False,
        Cause.RELEASED,
    )


def test_a_loop_that_was_held_up_executes_no_action_of_before() -> None:
    robot = moving()
    robot.now += ms(30_000)

    directive = robot.tick(age=ms(30_000))

    assert (directive.state, directive.executes) == (State.HOLD, False)


# Resuming.


def test_a_manual_hold_lasts_until_somebody_resumes() -> None:
    robot = holding()
    assert {robot.tick().state for _ in range(50)} == {State.HOLD}

    robot.contract.resume()
    directive = robot.tick()

    assert (directive.executes, cause_of(directive)) == (True, Cause.RESUME)


def test_a_resume_is_remembered_until_there_is_an_action() -> None:
    robot = holding()
    robot.contract.resume()
    assert robot.tick(None).state is State.HOLD

    assert robot.tick().state is State.ACTIVE


def test_a_resume_counts_for_one_hold() -> None:
    robot = moving()
    robot.contract.resume()  # there is nothing to resume
    robot.until(State.HOLD)

    assert robot.tick().state is State.HOLD


def test_a_resume_does_not_overrule_a_released_button() -> None:
    robot = holding()
    robot.contract.resume()

    assert robot.tick(is_enabled=False).state is State.HOLD


@pytest.mark.parametrize("rule", ["manual", "auto_if_still"])
def test_a_resume_too_far_from_the_robot_is_flushed(rule: str) -> None:
    robot = holding(resume=rule, max_start_jump=0.5)
    robot.contract.resume()

    far = robot.tick(0.8, pose=0.0)
    near = robot.tick(0.4, pose=0.0)

    assert (far.state, far.flush) == (State.HOLD, True)
    assert robot.contract.rejected_starts == 1
    assert near.executes


def test_where_the_pose_is_not_known_a_resume_is_measured_from_the_last_command() -> None:
    robot = holding(max_start_jump=0.5)
    robot.contract.resume()

    assert not robot.tick(0.6, pose=None).executes
    assert robot.tick(0.5, pose=None).executes


def test_a_robot_that_stands_still_resumes_by_itself() -> None:
    robot = holding(resume="auto_if_still", max_start_jump=0.5, max_still_step=0.01)

    assert robot.tick(pose=0.1).state is State.HOLD  # it moved by 0.1
    assert robot.tick(pose=0.105).executes


def test_a_robot_that_is_still_slowing_down_does_not_resume_by_itself() -> None:
    robot = moving(
        hold_mode="velocity",
        deceleration=0.5,
        resume="auto_if_still",
        max_start_jump=1.0,
        t_hold=ms(40),
    )
    robot.tick(0.03)
    robot.until(State.HOLD)
    states = [robot.tick(0.0).state for _ in range(3)]

    assert states == [State.HOLD, State.ACTIVE, State.ACTIVE]


def test_stale_actions_are_flushed_while_holding_so_that_fresh_ones_come() -> None:
    assert holding(max_action_age=ms(100)).tick(age=ms(101)).flush


def test_speed_rises_to_full_after_a_resume() -> None:
    robot = holding(resume_ramp=ms(100))
    robot.contract.resume()

    speeds = [robot.tick().speed for _ in range(7)]

    assert speeds == [0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0]


def test_a_start_jump_is_measured_to_the_action_and_not_to_a_step_on_the_way_to_it() -> None:
    robot = holding(max_start_jump=0.5)
    robot.contract.resume()
    robot.now += PERIOD
    step = Proposal(values=np.array([0.1]), heads_for=np.array([0.9]), observed=robot.now)

    directive = robot.contract.tick(robot.now, proposal=step, pose=np.array([0.0]))

    assert directive.state is State.HOLD
    assert directive.flush
