"""What a robot does when the server is late: the table, its times, its starts."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import ConfigError, UsageError
from takt.robot.contract import Directive, LateServerContract, Proposal
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import TABLE, Cause, State
from takt.units import Nanos, ms

PERIOD = ms(20)


class Robot:
    """A contract with a clock of its own; every tick lasts one period."""

    def __init__(self, **rules: Any) -> None:  # noqa: ANN401 - fields of ContractRules
        self.contract = LateServerContract(ContractRules(**rules), control_period=PERIOD)
        self.now: Nanos = ms(1000)

    def tick(
        self,
        value: float | None = 0.0,
        *,
        age: Nanos = 0,
        pose: float | None = 0.0,
        **sight: bool,
    ) -> Directive:
        self.now += PERIOD
        proposal = None
        if value is not None:
            proposal = Proposal(values=np.array([value]), observed=self.now - age)
        here = None if pose is None else np.array([pose])
        return self.contract.tick(self.now, proposal=proposal, pose=here, **sight)

    def until(self, state: State, value: float | None = None, **sight: Any) -> Directive:  # noqa: ANN401
        """Tick without an action until the state is entered."""
        for _ in range(10_000):
            directive = self.tick(value, **sight)
            if directive.state is state:
                return directive
        raise AssertionError(state)


def moving(**rules: Any) -> Robot:  # noqa: ANN401 - fields of ContractRules
    robot = Robot(**{"resume_ramp": 0, **rules})
    robot.contract.start()
    assert robot.tick().executes
    return robot


def holding(**rules: Any) -> Robot:  # noqa: ANN401 - fields of ContractRules
    robot = moving(**rules)
    robot.until(State.HOLD)
    return robot


def stopped(**rules: Any) -> Robot:  # noqa: ANN401 - fields of ContractRules
    robot = moving(**rules)
    robot.contract.stop()
    assert robot.tick().state is State.STOPPED
    return robot


def cause_of(directive: Directive) -> Cause | None:
    return None if directive.change is None else directive.change.cause


# The table.


def test_every_state_is_reached_and_none_but_stopped_is_latched() -> None:
    assert set(TABLE.values()) == set(State)
    assert {cause for (state, cause) in TABLE if state is State.STOPPED} == {Cause.RESET}


def test_every_cause_leads_somewhere() -> None:
    assert {cause for _, cause in TABLE} == set(Cause)


def test_a_robot_moves_again_only_by_a_start_or_a_resume_or_while_it_never_held() -> None:
    into_motion = {
        key
        for key, after in TABLE.items()
        if after in {State.ACTIVE, State.DEGRADED} and key[0] not in {State.ACTIVE, State.DEGRADED}
    }
    assert into_motion == {(State.IDLE, Cause.START), (State.HOLD, Cause.RESUME)}


# Starting.


def test_nothing_moves_before_a_start() -> None:
    robot = Robot()

    directives = [robot.tick(value) for value in (0.0, None, 1.0)]

    assert [(d.state, d.executes, d.command) for d in directives] == [(State.IDLE, False, None)] * 3
    assert robot.contract.hold_by is None


def test_a_started_robot_waits_for_its_first_action_as_long_as_it_takes() -> None:
    robot = Robot()
    robot.contract.start()
    waits = [robot.tick(None).state for _ in range(2000)]

    directive = robot.tick(0.5)

    assert set(waits) == {State.IDLE}
    assert robot.contract.is_started
    assert (directive.state, directive.executes, cause_of(directive)) == (
        State.ACTIVE,
        True,
        Cause.START,
    )


def test_an_executed_command_is_the_proposal_itself() -> None:
    robot = moving()
    values = np.array([0.1])

    directive = robot.contract.tick(
        robot.now + PERIOD, proposal=Proposal(values=values, observed=robot.now)
    )

    assert directive.command is values


def test_a_start_too_far_from_the_robot_is_flushed_and_counted() -> None:
    robot = Robot(max_start_jump=0.5)
    robot.contract.start()

    far = robot.tick(1.0, pose=0.4)
    near = robot.tick(0.9, pose=0.4)

    assert (far.state, far.executes, far.flush) == (State.IDLE, False, True)
    assert robot.contract.rejected_starts == 1
    assert near.executes


@pytest.mark.parametrize("pose", [None, float("nan")])
def test_a_robot_that_checks_its_start_and_knows_no_pose_does_not_start(
    pose: float | None,
) -> None:
    robot = Robot(max_start_jump=0.5)
    robot.contract.start()

    assert not robot.tick(0.0, pose=pose).executes


def test_a_robot_driven_by_velocities_starts_from_rest() -> None:
    robot = Robot(hold_mode="velocity", deceleration=1.0, max_start_jump=0.5)
    robot.contract.start()

    assert not robot.tick(0.6, pose=0.6).executes
    assert robot.tick(0.4, pose=7.0).executes


def test_a_proposal_far_away_is_no_rejected_start_before_anybody_starts() -> None:
    robot = Robot(max_start_jump=0.5)

    assert not robot.tick(9.0).flush
    assert robot.contract.rejected_starts == 0


def test_a_pose_of_another_shape_is_refused() -> None:
    robot = Robot(max_start_jump=0.5)
    proposal = Proposal(values=np.zeros(2), observed=0)

    with pytest.raises(UsageError, match=r"pose: expected shape \(2,\), got \(1,\)"):
        robot.contract.tick(1, proposal=proposal, pose=np.zeros(1))


# Degrading and holding.


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


# Stopping.


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


# Every way through.


wishes = st.sampled_from(["start", "stop", "resume", "reset", "chunk_rejected", "chunk_accepted"])
sights = st.fixed_dictionaries(
    {
        "value": st.one_of(st.none(), st.sampled_from([0.0, 0.1, 5.0])),
        "age": st.sampled_from([0, ms(90), ms(101), -1]),
        "pose": st.sampled_from([0.0, 0.1, None]),
        "is_overdue": st.booleans(),
        "is_enabled": st.sampled_from([True, True, True, False]),
    }
)


@given(
    st.lists(st.tuples(st.lists(wishes, max_size=2), st.integers(-1, 300), sights), max_size=60),
    st.sampled_from(["manual", "auto_if_still"]),
)
def test_only_moves_of_the_table_happen_and_each_is_told(
    steps: list[tuple[list[str], int, dict[str, Any]]], resume: str
) -> None:
    robot = Robot(
        resume=resume, max_start_jump=1.0, max_action_age=ms(100), t_hold=ms(60), t_stop=ms(200)
    )
    states = [State.IDLE]
    for wished, pause, sight in steps:
        for wish in wished:
            getattr(robot.contract, wish)()
        robot.now += ms(pause)

        directive = robot.tick(**sight)

        states.append(directive.state)
        change = directive.change
        if change is None:
            assert states[-1] is states[-2]
        else:
            assert (change.before, change.after) == (states[-2], states[-1])
            assert TABLE[change.before, change.cause] is change.after
        if directive.executes:
            assert directive.state in {State.ACTIVE, State.DEGRADED}
            assert 0 <= sight["age"] <= ms(100)
            assert sight["is_enabled"]
        assert 0 < directive.speed <= 1
    assert all(
        after in {State.IDLE, State.STOPPED}
        for before, after in itertools.pairwise(states)
        if before is State.STOPPED
    )


def test_impossible_periods_are_refused() -> None:
    with pytest.raises(ConfigError, match="control_period must be positive"):
        LateServerContract(ContractRules(), control_period=0)
    with pytest.raises(ConfigError, match="t_hold must be at least the control period"):
        Robot(t_hold=PERIOD - 1)


# Haste.


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


def test_a_start_jump_is_measured_to_the_action_and_not_to_a_step_on_the_way_to_it() -> None:
    robot = holding(max_start_jump=0.5)
    robot.contract.resume()
    robot.now += PERIOD
    step = Proposal(values=np.array([0.1]), heads_for=np.array([0.9]), observed=robot.now)

    directive = robot.contract.tick(robot.now, proposal=step, pose=np.array([0.0]))

    assert directive.state is State.HOLD
    assert directive.flush
