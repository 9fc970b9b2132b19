"""The order robot, door, slo, and what expires when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import ConfigError, ObservationError
from takt.session.timing import Declared, DueSource, NetworkAllowance, Timing, resolve_timing
from takt.units import ms

ARRIVAL = ms(1000)


def resolve(
    *, due_in: int | None = None, max_age: int | None = None, inferred: int | None = None
) -> Timing:
    declared = Declared(due_in=due_in, max_action_age=max_age)
    return resolve_timing(
        ARRIVAL, declared=declared, slo=ms(150), allowance=ms(20), inferred_due=inferred
    )


def test_what_the_robot_says_wins_over_what_the_door_infers() -> None:
    timing = resolve(due_in=ms(60), inferred=ARRIVAL + ms(90))

    assert timing.due == ARRIVAL + ms(60)
    assert timing.due_source is DueSource.ROBOT


def test_the_door_wins_over_the_slo() -> None:
    timing = resolve(inferred=ARRIVAL + ms(90))

    assert timing.due == ARRIVAL + ms(90)
    assert timing.due_source is DueSource.INFERRED


def test_a_silent_client_is_due_at_its_slo_less_the_network() -> None:
    timing = resolve()

    assert timing.due == timing.promise == ARRIVAL + ms(130)
    assert timing.due_source is DueSource.SLO


def test_the_promise_does_not_depend_on_the_due() -> None:
    assert resolve(due_in=ms(-500)).promise == resolve(inferred=ARRIVAL).promise


def test_a_dry_queue_is_due_in_the_past_and_yet_gets_its_chance() -> None:
    timing = resolve(due_in=-ms(5000))

    assert timing.due == ARRIVAL - ms(5000)
    assert timing.expires == ARRIVAL + ms(150)


def test_without_a_maximum_age_a_request_expires_one_slo_after_its_due() -> None:
    assert resolve(due_in=ms(60)).expires == ARRIVAL + ms(210)


def test_the_maximum_action_age_sets_the_expiry_less_the_network() -> None:
    assert resolve(due_in=ms(60), max_age=ms(500)).expires == ARRIVAL + ms(480)


@given(st.integers(-(10**15), 10**15))
def test_a_declared_due_is_never_clamped(due_in: int) -> None:
    assert resolve(due_in=due_in).due == ARRIVAL + due_in


def test_a_stock_client_keeps_the_constant_and_a_report_replaces_it() -> None:
    allowance = NetworkAllowance(constant=ms(20), most=ms(1000))
    before = allowance.value

    allowance.report(ms(35))

    assert (before, allowance.value) == (ms(20), ms(35))


@pytest.mark.parametrize("measured", [-1, ms(1000) + 1])
def test_an_incredible_report_is_refused_and_changes_nothing(measured: int) -> None:
    allowance = NetworkAllowance(constant=ms(20), most=ms(1000))

    with pytest.raises(ObservationError, match="network_ms: expected 0 to 1000 ms"):
        allowance.report(measured)

    assert allowance.value == ms(20)


def test_an_impossible_constant_is_the_operators_mistake() -> None:
    with pytest.raises(ConfigError, match="network allowance"):
        NetworkAllowance(constant=ms(2000), most=ms(1000))
