"""The interval of a median, and when to stop repeating."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import ConfigError
from takt.runtime.profiling.median import FEWEST, Enough, Median, median_of
from takt.units import SECOND, ms


def test_below_six_times_nothing_is_said_of_the_error() -> None:
    assert median_of([10, 20, 30, 40, 50]) == Median(30, 0, 0, 5)
    assert math.isinf(median_of([10, 20, 30, 40, 50]).error)


def test_six_times_are_enclosed_by_the_least_and_the_greatest() -> None:
    median = median_of([60, 10, 50, 20, 40, 30])

    assert median == Median(35, 10, 60, 6)
    assert median.error == pytest.approx(25 / 35)


def test_the_ranks_are_those_of_the_binomial_table() -> None:
    nine, twenty = median_of(range(1, 10)), median_of(range(1, 21))

    assert (nine.low, nine.high) == (2, 8)
    assert (twenty.low, twenty.high) == (6, 15)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=80))
def test_the_interval_encloses_the_median(times: list[int]) -> None:
    median = median_of(times)

    assert median.runs == len(times)
    if median.low:
        assert median.low <= median.value <= median.high


def test_the_interval_misses_the_true_median_in_a_twentieth_of_the_draws_at_most() -> None:
    draw = Random(1)
    misses = 0
    for _ in range(1000):
        median = median_of([round(draw.lognormvariate(15, 0.3)) for _ in range(20)])
        misses += not median.low <= math.exp(15) <= median.high

    assert misses <= 60


def test_equal_times_are_enough_at_the_first_look() -> None:
    enough = Enough()

    assert not enough.of([ms(5)] * 5, 0)
    assert enough.of([ms(5)] * 6, 0)


def test_between_two_looks_nothing_is_decided() -> None:
    assert not Enough().of([ms(5)] * 7, 0)
    assert Enough().of([ms(5)] * 8, 0)


def test_scattered_times_go_on_until_runs_or_time_are_up() -> None:
    enough = Enough(relative_error=0.01, most_runs=30, most_time=SECOND)
    times = [ms(5 + number % 5) for number in range(30)]

    assert not enough.of(times[:27], 0)
    assert enough.of(times, 0)
    assert enough.of(times[:FEWEST], SECOND)
    assert not enough.of(times[: FEWEST - 1], 2 * SECOND)


@pytest.mark.parametrize("error", [0.0, 0.5, -1.0, math.nan])
def test_an_impossible_error_is_refused(error: float) -> None:
    with pytest.raises(ConfigError, match="relative_error must lie above 0"):
        Enough(relative_error=error)


def test_too_few_runs_and_no_time_are_refused() -> None:
    with pytest.raises(ConfigError, match="most_runs must be at least 3, got 2"):
        Enough(most_runs=2)
    with pytest.raises(ConfigError, match="most_time must be positive"):
        Enough(most_time=0)
