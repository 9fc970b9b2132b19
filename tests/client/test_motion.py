import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.client.rig import DIM, Rig, counting, pose_of

from takt.client.cameras import Cameras
from takt.client.episode_log import EpisodeLog
from takt.client.loop_settings import Hooks, LoopSettings
from takt.client.mailbox import Asked
from takt.robot.contract import StateChange
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import Cause, State
from takt.robot.guard import GuardLimits
from takt.robot.replanning import ThresholdRule
from takt.testing import ManualClock
from takt.units import ms, seconds

AT_ONCE = ContractRules(resume_ramp=0)
PLAIN = LoopSettings(control_hz=50.0, contract=AT_ONCE)


def rules_of(rig: Rig) -> ContractRules:
    return rig.settings.contract


def values(rig: Rig) -> list[float]:
    return [round(float(sent.values[0]), 6) for sent in rig.sent]


def test_nothing_moves_before_somebody_starts_the_robot() -> None:
    rig = Rig(PLAIN)

    rig.run(seconds(3))

    assert rig.sent == []
    assert rig.state is State.IDLE
    assert rig.asked


def test_every_action_is_executed_once_in_order_at_the_control_rate() -> None:
    rig = Rig(PLAIN).started()

    rig.run(seconds(2))

    assert values(rig) == [round(step / 100, 6) for step in range(len(rig.sent))]
    assert {b.at - a.at for a, b in zip(rig.sent, rig.sent[1:], strict=False)} == {ms(20)}
    assert rig.motion.executed == len(rig.sent)


def test_the_server_is_told_when_the_queue_runs_dry_less_the_network() -> None:
    rig = Rig(PLAIN, latency=ms(60)).started()
    rig.run(seconds(1))

    asked = rig.asked[-1]

    # Ten actions of 20 ms are left from this tick on, and the network takes 30 of 60 ms.
    assert asked.due_in == 10 * ms(20) - ms(30)
    assert asked.expires_in == PLAIN.contract.max_action_age


def test_a_chunk_begins_with_the_action_after_those_its_observation_shows() -> None:
    rig = Rig(PLAIN, latency=ms(60)).started()
    rig.run(seconds(2))

    # The robot stands where its last command sent it, and each says its timestep in hundredths.
    shown = [round(100 * float(pose_of(asked.observation)[0])) for asked in rig.asked]
    assert len(shown) > 3
    assert shown[1:] == [asked.posted.first_timestep - 1 for asked in rig.asked[1:]]


def test_sync_looks_when_the_last_action_has_had_its_period() -> None:
    settings = LoopSettings(control_hz=50.0, sync=True, contract=AT_ONCE)
    rig = Rig(settings, latency=ms(60)).started()
    rig.run(seconds(2))

    last_of_first_chunk = next(each for each in rig.executed if each.timestep == 19)
    assert rig.asked[1].posted.observed == last_of_first_chunk.at + settings.control_period


def test_sync_looks_no_earlier_when_commands_are_interpolated() -> None:
    settings = LoopSettings(control_hz=50.0, policy_hz=10.0, sync=True, contract=AT_ONCE)
    rig = Rig(settings, latency=ms(60), chunk=lambda asked: counting(asked, 5)).started()
    rig.run(seconds(2))

    last_of_first_chunk = next(
        each for each in rig.executed if each.timestep == 4 and each.is_whole
    )
    assert rig.asked[1].posted.observed == last_of_first_chunk.at + settings.control_period


def test_one_observation_is_under_way_at_a_time() -> None:
    rig = Rig(PLAIN, latency=ms(300)).started()
    rig.run(seconds(3))

    gaps = [b.sent - a.sent for a, b in zip(rig.asked, rig.asked[1:], strict=False)]

    assert min(gaps) >= ms(300)


def test_an_observation_that_waits_to_be_sent_is_replaced_by_the_newest() -> None:
    rig = Rig(PLAIN)
    for _ in range(3):  # nobody takes it
        rig.motion.tick(rig.clock.now())
        rig.clock.advance(ms(20))

    taken = rig.mailbox.take_request()

    assert taken is not None
    assert taken.posted.observed == ms(1040)
    assert rig.mailbox.take_request() is None


def test_between_two_actions_of_a_slow_policy_commands_are_interpolated() -> None:
    settings = LoopSettings(control_hz=50.0, policy_hz=10.0, contract=AT_ONCE)
    rig = Rig(settings).started()

    rig.run(ms(300))

    assert values(rig)[:11] == [0.0, *(round(0.002 * step, 6) for step in range(1, 11))]
    assert rig.motion.executed == 4


def test_a_gripper_is_not_interpolated() -> None:
    rules = ContractRules(resume_ramp=0, kept=(1,))
    rig = Rig(LoopSettings(control_hz=50.0, policy_hz=10.0, contract=rules)).started()

    rig.run(ms(200))

    assert [round(float(sent.values[1]), 6) for sent in rig.sent[:6]] == [0, 0, 0, 0, 0, 0.01]


def test_a_cut_ends_in_hold_within_t_hold_of_the_last_valid_action() -> None:
    rig = Rig(PLAIN).started()
    rig.run(seconds(1))
    rig.is_cut = True

    rig.run(seconds(3))

    (held,) = [change for change in rig.changes if change.after is State.HOLD]
    last = rig.sent[rig.motion.executed - 1]
    assert last.state in {State.ACTIVE, State.DEGRADED}
    assert 0 < held.at - last.at <= PLAIN.contract.t_hold
    assert values(rig)[rig.motion.executed :] == [values(rig)[rig.motion.executed - 1]] * (
        len(rig.sent) - rig.motion.executed
    )


@given(st.lists(st.integers(0, 10).map(ms), min_size=80, max_size=80))
def test_ticks_that_begin_late_by_half_a_period_still_hold_in_time(late: list[int]) -> None:
    rig = Rig(PLAIN, chunk=lambda asked: counting(asked, 5)).started()
    rig.is_cut = True
    rig.run(ms(40))
    origin = rig.clock.now()
    for number, lateness in enumerate(late):
        rig.clock.advance(origin + number * ms(20) + lateness - rig.clock.now())
        rig.tick_in_place()

    (held,) = [change for change in rig.changes if change.after is State.HOLD]
    last = max(command.at for command in rig.executed)
    assert held.at - last <= PLAIN.contract.t_hold


@pytest.mark.parametrize(
    ("resume", "expected"), [("manual", State.HOLD), ("auto_if_still", State.ACTIVE)]
)
def test_a_robot_resumes_after_an_outage_of_30_s_by_the_rule(resume: str, expected: State) -> None:
    rules = ContractRules(
        t_stop=None,
        resume=resume,  # type: ignore[arg-type]
        max_start_jump=0.05,
    )
    rig = Rig(LoopSettings(control_hz=50.0, contract=rules), hooks=Hooks(pose=pose_of)).started()
    rig.run(seconds(1))
    before = rig.motion.executed
    rig.is_cut = True
    rig.run(seconds(30))
    assert rig.state is State.HOLD
    rig.is_cut = False

    rig.run(seconds(5))

    assert rig.state is expected
    rig.motion.contract.resume()
    rig.run(seconds(1))
    assert rig.state is State.ACTIVE
    moving = [sent for sent in rig.sent if sent.state is not State.HOLD]
    steps = np.diff([sent.values[0] for sent in moving])
    assert (steps >= 0).all()
    assert rig.motion.executed > before + 20


def test_a_long_outage_stops_the_robot_and_tells_once() -> None:
    told: list[StateChange] = []
    rules = ContractRules(t_stop=seconds(2), resume_ramp=0)
    settings = LoopSettings(control_hz=50.0, contract=rules)
    rig = Rig(settings, hooks=Hooks(on_stop=told.append)).started()
    rig.is_cut = True

    rig.run(seconds(10))
    rig.is_cut = False
    rig.run(seconds(5))

    assert rig.state is State.STOPPED
    assert [change.cause for change in told] == [Cause.TIMEOUT]


def test_a_stopped_robot_asks_for_nothing_until_it_is_reset() -> None:
    rig = Rig(PLAIN).started()
    rig.motion.contract.stop()
    rig.tick()
    asked = len(rig.asked)
    rig.run(seconds(2))
    assert len(rig.asked) == asked

    rig.motion.contract.reset()
    rig.tick()
    rig.motion.contract.start()
    rig.run(seconds(1))

    assert rig.state is State.ACTIVE


def test_no_action_older_than_the_greatest_age_is_executed() -> None:
    rules = ContractRules(max_action_age=ms(200), t_stop=None, resume_ramp=0)
    rig = Rig(LoopSettings(control_hz=50.0, contract=rules), chunk=lambda a: counting(a, 50))
    rig.started()
    rig.is_cut = True

    rig.run(seconds(3))

    first = rig.asked[0].posted.observed
    executed = rig.sent[: rig.motion.executed]
    assert max(sent.at for sent in executed) - first <= ms(200)
    assert rig.motion.executed < 50


@pytest.mark.parametrize(("rule", "goes_on"), [("drop", False), ("replace", True)])
def test_what_is_queued_after_a_cut_is_given_up_by_the_rule(rule: str, goes_on: bool) -> None:
    settings = LoopSettings(
        control_hz=50.0,
        contract=AT_ONCE,
        after_cut=rule,  # type: ignore[arg-type]
    )
    rig = Rig(settings).started()
    rig.is_cut = True
    while not rig.motion.failures:
        rig.tick()
    executed = rig.motion.executed

    rig.run(ms(200))

    assert (rig.motion.executed > executed) is goes_on


def test_a_released_button_holds_at_once_whatever_the_network_does() -> None:
    held = [True]
    rig = Rig(PLAIN, hooks=Hooks(is_enabled=lambda: held[0])).started()
    held[0] = False

    rig.tick()

    assert rig.state is State.HOLD
    assert rig.changes[-1].cause is Cause.RELEASED


def test_a_button_that_cannot_be_read_counts_as_released() -> None:
    def broken() -> bool:
        raise OSError("the bus is gone")

    rig = Rig(PLAIN, hooks=Hooks(is_enabled=broken))
    rig.motion.contract.start()

    rig.run(seconds(1))

    assert rig.sent == []
    assert rig.motion.faults["is_enabled"] > 0


def test_sync_asks_when_everything_is_executed_and_stands_still_for_the_answer() -> None:
    settings = LoopSettings(control_hz=50.0, sync=True, contract=AT_ONCE)
    rig = Rig(settings, latency=ms(100)).started()

    rig.run(seconds(2))

    assert all(asked.due_in < ms(40) for asked in rig.asked)
    assert rig.motion.starved_ticks > 0
    assert rig.state in {State.ACTIVE, State.DEGRADED}
    assert rig.asked[1].posted.first_timestep == 20


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


def test_a_merge_function_that_fails_costs_its_chunks_and_in_the_end_stops_the_robot() -> None:
    def broken(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError

    settings = LoopSettings(control_hz=50.0, contract=AT_ONCE, merge=broken)
    rig = Rig(settings).started()

    rig.run(seconds(1))

    assert rig.motion.faults["chunk"] == rules_of(rig).max_rejections
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


def test_every_action_and_change_of_state_is_noted_with_its_origin(tmp_path: Path) -> None:
    with EpisodeLog(tmp_path / "e.jsonl", clock=ManualClock(ms(1000)).now) as log:
        rig = Rig(PLAIN, log=log).started()
        rig.run(seconds(1))
        rig.is_cut = True
        rig.run(seconds(3))

    lines = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    actions = [line for line in lines if line["event"] == "action"]
    assert [line["timestep"] for line in actions] == list(range(rig.motion.executed))
    assert actions[0] | {"event": "action", "chunk": 1, "index": 0, "blended": False} == actions[0]
    assert actions[0]["age_ms"] == actions[0]["at_ms"]
    assert {line["chunk"] for line in actions} <= {
        line["chunk"] for line in lines if line["event"] == "chunk"
    }
    states = [(line["after"], line["cause"]) for line in lines if line["event"] == "state"]
    assert states[0] == ("active", "start")
    assert states[-1] == ("hold", "no_action")
    assert [line["event"] for line in lines].count("hold") == 1
    assert {line["code"] for line in lines if line["event"] == "failure"} == {"closed"}


@given(
    st.lists(
        st.sampled_from(["run", "cut", "heal", "slow", "fast", "resume", "release", "press"]),
        max_size=12,
    ),
    st.sampled_from(["latest_only", "weighted_average"]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([1, 3]),
)
def test_whatever_the_network_does_no_timestep_runs_twice_and_none_is_too_old(
    happenings: list[str], merge: str, threshold: float, multiplier: int
) -> None:
    rules = ContractRules(max_action_age=ms(400), t_hold=ms(100), t_stop=None)
    settings = LoopSettings(
        control_hz=30.0 * multiplier,
        policy_hz=30.0,
        contract=rules,
        merge=merge,  # type: ignore[arg-type]
        rule=ThresholdRule(threshold=threshold),
    )
    enabled = [True]
    rig = Rig(settings, hooks=Hooks(is_enabled=lambda: enabled[0]))
    rig.motion.contract.start()
    acts: dict[str, Callable[[], None]] = {
        "cut": lambda: setattr(rig, "is_cut", True),
        "heal": lambda: setattr(rig, "is_cut", False),
        "slow": lambda: setattr(rig, "latency", ms(350)),
        "fast": lambda: setattr(rig, "latency", ms(20)),
        "resume": rig.motion.contract.resume,
        "release": lambda: enabled.__setitem__(0, False),
        "press": lambda: enabled.__setitem__(0, True),
    }
    for happening in happenings:
        acts.get(happening, lambda: None)()
        rig.run(ms(500))

    whole = [command.timestep for command in rig.executed if command.is_whole]
    headings = [timestep for timestep, _ in groupby(rig.executed, lambda c: c.timestep)]
    assert whole == sorted(set(whole))
    assert headings == sorted(set(headings))
    assert all(0 <= command.age <= ms(400) for command in rig.executed)
    for change in rig.changes:
        if change.after is State.HOLD and change.cause is not Cause.RELEASED:
            last = max(command.at for command in rig.executed if command.at <= change.at)
            assert change.at - last <= rules.t_hold


# Bad luck.


def test_a_chunk_longer_than_its_actions_may_be_old_does_not_starve_the_robot() -> None:
    rig = Rig(PLAIN, chunk=lambda asked: counting(asked, 400)).started()
    starved = rig.motion.starved_ticks

    rig.run(seconds(20))

    assert rig.motion.starved_ticks == starved
    assert max(command.age for command in rig.executed) <= AT_ONCE.max_action_age


def test_after_a_gap_commands_set_out_from_where_the_robot_is_held() -> None:
    settings = LoopSettings(
        control_hz=50.0, policy_hz=10.0, contract=replace(AT_ONCE, t_hold=seconds(5))
    )
    rig = Rig(settings, chunk=lambda asked: counting(asked, 4)).started()
    rig.is_cut = True
    rig.run(seconds(1))
    assert rig.state is State.DEGRADED
    rig.is_cut = False

    rig.run(seconds(1))

    steps = np.diff([sent.values[0] for sent in rig.sent])
    assert rig.motion.executed > 4
    assert steps.max() <= 0.01 / 5 + 1e-9


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


def test_a_hold_ends_as_slowly_as_the_ramp_says() -> None:
    rules = ContractRules(resume_ramp=ms(500))
    rig = Rig(LoopSettings(control_hz=50.0, contract=rules)).started()
    rig.is_cut = True
    rig.run_until(State.HOLD)
    held = rig.sent[-1].values[0]
    rig.is_cut = False
    rig.chunk = lambda asked: counting(asked) + 1.0
    rig.motion.contract.resume()
    rig.run_until(State.ACTIVE)

    # In the first of 25 ticks the robot goes a 25th of the way.
    assert rig.sent[-1].values[0] - held == pytest.approx(0.04, abs=0.001)


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


def test_a_robot_that_says_nothing_of_itself_is_a_fault_that_is_counted() -> None:
    rig = Rig(PLAIN)
    rig.robot.observe = lambda: None  # type: ignore[method-assign, assignment, return-value]
    rig.run(ms(100))

    assert rig.motion.faults["observe"] == 5
    assert rig.asked == []


def test_a_robot_that_is_slow_to_say_where_it_is_gets_no_action_that_grew_too_old() -> None:
    rules = ContractRules(max_action_age=ms(400), t_hold=ms(300), resume_ramp=0)
    settings = LoopSettings(control_hz=50.0, contract=rules)
    rig = Rig(settings, hooks=Hooks(pose=pose_of)).started()
    seen = rig.robot.observe()

    def stall() -> Mapping[str, object]:
        rig.clock.advance(seconds(1))
        return seen

    rig.robot.observe = stall  # type: ignore[method-assign]
    executed = rig.motion.executed
    rig.tick()

    assert rig.motion.executed == executed
    assert rig.state is State.HOLD


@pytest.mark.parametrize("why", ["stop", "release", "reject"])
def test_a_robot_that_is_halted_is_not_looked_at_first(why: str) -> None:
    pressed = [True]
    rig = Rig(PLAIN, hooks=Hooks(pose=pose_of, is_enabled=lambda: pressed[0])).started()
    rig.run(ms(100))
    observed = rig.robot.observed
    if why == "stop":
        rig.motion.contract.stop()
    elif why == "release":
        pressed[0] = False
    else:
        for _ in range(rules_of(rig).max_rejections):
            rig.motion.contract.chunk_rejected()

    rig.tick()

    assert rig.state in {State.HOLD, State.STOPPED}
    assert rig.robot.observed == observed


def test_a_stopped_robot_comes_to_rest_without_being_looked_at() -> None:
    rules = ContractRules(hold_mode="velocity", deceleration=0.1, resume_ramp=0)
    settings = LoopSettings(control_hz=50.0, contract=rules)
    rig = Rig(settings, hooks=Hooks(pose=pose_of)).started()
    rig.run(ms(400))
    observed, moved = rig.robot.observed, len(rig.sent)
    rig.motion.contract.stop()

    rig.run(seconds(4))

    assert rig.robot.observed == observed
    assert len(rig.sent) > moved + 5
    assert values(rig)[-1] == 0.0
    rig.motion.contract.reset()
    rig.run(ms(40))
    assert rig.robot.observed > observed


def slow_to_be_seen(last_valid: int) -> list[int]:
    """Nearly all of a period, and quick in the last tick at which a hold would still be early."""
    return [ms(15)] * (last_valid + 24) + [0] + [ms(19)] * 55


@given(st.lists(st.integers(0, 19).map(ms), min_size=80, max_size=80))
@example(slow_to_be_seen(0))
@example(slow_to_be_seen(1))
@example(slow_to_be_seen(2))
@example(slow_to_be_seen(3))
def test_a_robot_that_is_slow_to_be_seen_still_holds_in_time(slow: list[int]) -> None:
    hooks = Hooks(pose=pose_of)
    rig = Rig(PLAIN, chunk=lambda asked: counting(asked, 5), hooks=hooks).started()
    rig.is_cut = True
    rig.run(ms(40))
    seen = rig.robot.observe()
    took = iter(slow)

    def observe() -> Mapping[str, object]:
        rig.clock.advance(next(took))
        return seen

    rig.robot.observe = observe  # type: ignore[method-assign]
    origin = rig.clock.now()
    for number in range(len(slow)):
        rig.clock.advance(origin + number * ms(20) - rig.clock.now())
        rig.tick_in_place()

    (held,) = [change for change in rig.changes if change.after is State.HOLD]
    last = max(command.at for command in rig.executed)
    assert held.at - last <= PLAIN.contract.t_hold
