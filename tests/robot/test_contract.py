"""What a robot does when the server is late: the table, its starts, every way through."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.robot.rig import PERIOD, Robot, cause_of, moving

from takt.errors import ConfigError, UsageError
from takt.robot.contract import LateServerContract, Proposal
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import TABLE, Cause, State
from takt.units import ms

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
