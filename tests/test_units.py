"""Times convert to whole nanoseconds and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.units import MICROSECOND, MILLISECOND, SECOND, ms, seconds, to_ms, to_seconds


def test_units_are_multiples_of_one_another() -> None:
    assert MILLISECOND == 1_000 * MICROSECOND
    assert SECOND == 1_000 * MILLISECOND == 1_000_000_000


@pytest.mark.parametrize(
    ("value", "nanos"),
    [
        (0, 0),
        (1, 1_000_000),
        (0.0000004, 0),
        (0.0000006, 1),
        (33.3333333, 33_333_333),
        (-2, -2_000_000),
    ],
)
def test_milliseconds_round_to_the_nearest_nanosecond(value: float, nanos: int) -> None:
    converted = ms(value)

    assert converted == nanos
    assert isinstance(converted, int)


def test_seconds_round_to_the_nearest_nanosecond() -> None:
    assert seconds(1.5) == 1_500_000_000
    assert isinstance(seconds(2), int)


@given(st.integers(-(10**15), 10**15))
def test_twelve_days_of_nanoseconds_survive_the_way_through_floats(nanos: int) -> None:
    assert ms(to_ms(nanos)) == nanos
    assert seconds(to_seconds(nanos)) == nanos
