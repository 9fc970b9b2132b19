"""Chunks, commands, hooks and devices that are wrong, and what the robot then does."""

import numpy as np
import pytest
from tests.client.rig import AT_ONCE, DIM, PLAIN, Rig, counting, pose_of

from takt.client.cameras import Cameras
from takt.client.loop_settings import Hooks, LoopSettings
from takt.client.mailbox import Asked
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import Cause, State
from takt.robot.guard import GuardLimits
from takt.testing import ManualClock
from takt.units import ms, seconds


def test_a_button_that_cannot_be_read_counts_as_released() -> None:
    def broken() -> bool:
        raise OSError("the bus is gone")

    rig = Rig(PLAIN, hooks=Hooks(is_enabled=broken))
    rig.motion.contract.start()

    rig.run(seconds(1))

    assert rig.sent == []
    assert rig.motion.faults["is_enabled"] > 0


def test_a_plan_that_begins_far_away_never_starts_and_the_guard_does_not_hide_it() -> None:
    rules = ContractRules(max_start_jump=0.1, resume_ramp=0)
    limits = GuardLimits(action_dim=DIM, max_step=0.01)
    settings = LoopSettings(control_hz=50.0, contract=rules, limits=limits)
    rig = Rig(settings, hooks=Hooks(pose=pose_of), chunk=lambda asked: counting(asked) + 5.0)
    rig.motion.contract.start()

    rig.run(seconds(2))

    assert rig.sent == []
    assert rig.motion.contract.rejected_starts > 0


def test_the_guard_bounds_the_step_where_two_plans_meet() -> None:
    limits = GuardLimits(action_dim=DIM, max_step=0.02)
    settings = LoopSettings(control_hz=50.0, contract=AT_ONCE, limits=limits)

    def jumping(asked: Asked) -> np.ndarray:
        return counting(asked) + asked.posted.chunk_id % 2

    rig = Rig(settings, chunk=jumping).started()
    rig.run(seconds(2))

    steps = np.abs(np.diff([sent.values[0] for sent in rig.sent]))
    assert steps.max() <= 0.02 + 1e-9
    assert rig.motion.violations["step"] > 0
    assert rig.motion.splices.count > 1


def test_the_guard_bounds_the_first_step_out_of_a_hold() -> None:
    limits = GuardLimits(action_dim=DIM, max_step=0.02)
    rig = Rig(LoopSettings(control_hz=50.0, contract=AT_ONCE, limits=limits)).started()
    rig.is_cut = True
    rig.run_until(State.HOLD)
    rig.is_cut = False
    rig.chunk = lambda asked: counting(asked) + 5.0
    rig.motion.contract.resume()
    rig.run_until(State.ACTIVE)

    steps = np.abs(np.diff([sent.values[0] for sent in rig.sent]))
    assert steps.max() <= 0.02 + 1e-9


def test_chunks_that_are_not_finite_are_never_sent_and_stop_the_robot_in_the_end() -> None:
    limits = GuardLimits(action_dim=DIM)
    settings = LoopSettings(control_hz=50.0, contract=AT_ONCE, limits=limits)
    rig = Rig(settings).started()
    rig.chunk = lambda asked: np.full((20, DIM), np.nan)

    rig.run(seconds(3))

    assert all(np.isfinite(sent.values).all() for sent in rig.sent)
    assert rig.changes[-1].cause is Cause.REJECTED
    assert rig.motion.violations["non_finite"] > 0


def test_a_chunk_with_other_joints_than_the_one_before_is_not_executed() -> None:
    rig = Rig(PLAIN).started()
    rig.chunk = lambda asked: np.zeros((20, DIM + 1))

    rig.run(seconds(2))

    assert all(sent.values.shape == (DIM,) for sent in rig.sent)
    assert rig.motion.faults["chunk"] > 0
    assert rig.changes[-1].cause is Cause.REJECTED


def test_a_pose_with_other_joints_than_the_actions_stops_the_robot() -> None:
    rules = ContractRules(max_start_jump=0.1)
    hooks = Hooks(pose=lambda seen: np.zeros(DIM + 1))
    rig = Rig(LoopSettings(control_hz=50.0, contract=rules), hooks=hooks)
    rig.motion.contract.start()

    rig.run(seconds(1))

    assert rig.sent == []
    assert rig.state is State.STOPPED
    assert rig.motion.faults["contract"] == 1


@pytest.mark.parametrize(
    "rules",
    [
        ContractRules(kept=(DIM,)),
        ContractRules(hold_mode="velocity", deceleration=(1.0,) * (DIM + 1)),
    ],
)
def test_a_robot_whose_rules_do_not_fit_the_actions_is_never_moved(rules: ContractRules) -> None:
    rig = Rig(LoopSettings(control_hz=50.0, contract=rules))
    rig.motion.contract.start()
    rig.run(seconds(2))

    assert rig.sent == []
    assert rig.state is State.STOPPED
    assert rig.motion.faults["chunk"] == rules.max_rejections


def test_a_merge_function_that_fails_costs_its_chunks_and_in_the_end_stops_the_robot() -> None:
    def broken(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError

    settings = LoopSettings(control_hz=50.0, contract=AT_ONCE, merge=broken)
    rig = Rig(settings).started()

    rig.run(seconds(1))

    assert rig.motion.faults["chunk"] == rig.settings.contract.max_rejections
    assert rig.changes[-1].cause is Cause.REJECTED


def test_a_robot_that_takes_no_commands_is_stopped() -> None:
    rig = Rig(PLAIN).started()
    rig.robot.act_error = OSError("the bus is gone")

    rig.run(ms(200))

    assert rig.state is State.STOPPED
    assert rig.motion.faults["act"] >= PLAIN.max_faults


def test_one_command_that_is_not_taken_is_counted_and_the_loop_goes_on() -> None:
    rig = Rig(PLAIN).started()
    rig.robot.act_error = OSError("the bus hiccups")
    rig.tick()
    rig.robot.act_error = None

    rig.run(seconds(1))

    assert rig.state is State.ACTIVE
    assert rig.motion.faults == {"act": 1}


def test_a_robot_that_cannot_see_holds() -> None:
    rig = Rig(PLAIN).started()
    rig.robot.observe_error = OSError("the encoder is gone")

    rig.run(seconds(3))

    assert rig.state is State.HOLD
    assert rig.motion.faults["observe"] > 0


def test_a_robot_that_says_nothing_of_itself_is_a_fault_that_is_counted() -> None:
    rig = Rig(PLAIN)
    rig.robot.observe = lambda: None  # type: ignore[method-assign, assignment, return-value]
    rig.run(ms(100))

    assert rig.motion.faults["observe"] == 5
    assert rig.asked == []


def test_images_come_at_their_own_rate_and_a_frozen_camera_ends_in_a_hold() -> None:
    frames = iter(range(1_000_000))
    cameras: list[Cameras] = []

    def make(clock: ManualClock) -> Cameras:
        cameras.append(Cameras(lambda: {"image": next(frames)}, rate_hz=10.0, clock=clock.now))
        return cameras[0]

    rig = Rig(PLAIN, cameras=make)
    rig.run(ms(100))
    assert rig.asked == []
    rig.motion.contract.start()
    for number in range(100):
        if number % 5 == 0:
            cameras[0].read_once()
        rig.tick()
    assert rig.state is State.ACTIVE
    assert all("image" in asked.observation for asked in rig.asked)
    assert max(asked.sent - asked.posted.observed for asked in rig.asked) <= ms(100)

    rig.run(seconds(4))

    assert rig.state is State.HOLD
    assert rig.motion.failures["stale"] > 0
