"""A robot whose chunks come late or not at all, and one that is slow itself."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.client.rig import AT_ONCE, PLAIN, Rig, counting, pose_of, values

from takt.client.loop_settings import Hooks, LoopSettings
from takt.robot.contract import StateChange
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import Cause, State
from takt.robot.replanning import ThresholdRule
from takt.units import ms, seconds


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


@pytest.mark.slow
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
        for _ in range(rig.settings.contract.max_rejections):
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
