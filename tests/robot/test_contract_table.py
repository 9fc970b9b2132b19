"""The table allows what the contract promises, and nothing more."""

from takt.robot.contract_table import TABLE, Cause, State


def leads_to(state: State) -> set[Cause]:
    return {cause for (_, cause), to in TABLE.items() if to is state}


def test_every_state_is_reached_from_idle() -> None:
    reached = {State.IDLE}
    while new := {to for (at, _), to in TABLE.items() if at in reached} - reached:
        reached |= new

    assert reached == set(State)


def test_every_cause_has_a_move_and_no_move_stays_where_it_is() -> None:
    assert {cause for _, cause in TABLE} == set(Cause)
    assert all(at is not to for (at, _), to in TABLE.items())


def test_the_latch_is_left_by_a_reset_alone_and_to_idle() -> None:
    assert {cause: to for (at, cause), to in TABLE.items() if at is State.STOPPED} == {
        Cause.RESET: State.IDLE
    }


def test_a_robot_that_is_not_driven_begins_to_move_by_a_start_or_a_resume_alone() -> None:
    still = {State.IDLE, State.HOLD, State.STOPPED}
    moving = {State.ACTIVE, State.DEGRADED}

    assert {cause for (at, cause), to in TABLE.items() if at in still and to in moving} == {
        Cause.START,
        Cause.RESUME,
    }


def test_every_state_but_the_latch_is_stopped_by_a_fault() -> None:
    for state in set(State) - {State.STOPPED}:
        for fault in (Cause.STOP, Cause.CLOCK, Cause.REJECTED):
            assert TABLE[state, fault] is State.STOPPED
    assert leads_to(State.STOPPED) == {Cause.STOP, Cause.CLOCK, Cause.REJECTED, Cause.TIMEOUT}
