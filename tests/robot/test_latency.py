"""How long something takes: on the long side, and no freak value decides."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import ConfigError, UsageError
from takt.robot.latency import LatencyEstimate
from takt.units import ms


def estimate_of(*durations: int, **settings: float) -> LatencyEstimate:
    latency = LatencyEstimate(**{"cold_starts": 0, **settings})  # pyright: ignore[reportArgumentType]
    for took in durations:
        latency.add(took)
    return latency


def test_nothing_is_known_at_first() -> None:
    latency = LatencyEstimate()

    assert (latency.estimate, latency.estimate_ms, latency.steps(ms(20))) == (None, None, None)


def test_the_first_duration_is_cold_and_does_not_count() -> None:
    latency = estimate_of(ms(9_000), cold_starts=1)
    assert latency.estimate is None

    latency.add(ms(40))

    assert (latency.estimate_ms, latency.samples) == (40.0, 1)


def test_after_a_restart_the_next_duration_is_cold_again() -> None:
    latency = estimate_of(1, 40, 50, cold_starts=1)

    latency.restart()
    latency.add(9_000)

    assert (latency.samples, latency.estimate) == (2, 40)


@given(
    st.lists(st.integers(100, 200), min_size=2, max_size=40),
    st.one_of(st.integers(0, 99), st.integers(201, 10**12)),
    st.data(),
    st.floats(0.5, 1),
)
def test_one_outlier_among_three_or_more_does_no_harm(
    usual: list[int], outlier: int, data: st.DataObject, quantile: float
) -> None:
    durations = list(usual)
    durations.insert(data.draw(st.integers(0, len(usual))), outlier)

    estimate = estimate_of(*durations, quantile=quantile, window=50).estimate

    assert estimate is not None
    assert min(usual) <= estimate <= max(usual)


@given(st.lists(st.integers(0, 1000), min_size=1), st.floats(0.5, 1), st.integers(1, 20))
def test_the_estimate_covers_its_share_of_the_window_but_for_the_longest(
    durations: list[int], quantile: float, window: int
) -> None:
    latest = sorted(durations[-window:])

    estimate = estimate_of(*durations, quantile=quantile, window=window).estimate

    assert estimate in latest
    covered = sum(took <= estimate for took in latest)
    assert covered >= min(math.ceil(quantile * len(latest)), max(1, len(latest) - 1))


def test_what_was_slow_leaves_the_window() -> None:
    latency = estimate_of(900, 900, 10, 10, 10, 10, window=4)

    assert latency.estimate == 10


def test_with_quantile_one_it_is_the_second_longest() -> None:
    assert estimate_of(5, 1, 9, 7, quantile=1).estimate == 7
    assert estimate_of(5, quantile=1).estimate == 5


def network_of(*times: int) -> int | None:
    network = LatencyEstimate.of_network()
    for time in times:
        network.add(time)
    return network.estimate


def test_of_the_network_the_first_answer_counts_at_once() -> None:
    assert network_of(ms(3)) == ms(3)


def test_one_outlier_of_the_network_does_no_harm() -> None:
    assert network_of(ms(3), ms(900), ms(4)) == ms(4)


def test_a_network_that_became_slow_is_believed() -> None:
    assert network_of(*[ms(3)] * 20, ms(40), ms(41)) == ms(40)


def test_a_network_that_became_fast_is_believed_after_a_while() -> None:
    assert network_of(*[ms(40)] * 20, *[ms(3)] * 8) == ms(3)


@pytest.mark.parametrize(("took", "steps"), [(0, 0), (1, 1), (ms(20), 1), (ms(20) + 1, 2)])
def test_a_control_step_begun_counts_whole(took: int, steps: int) -> None:
    assert estimate_of(took).steps(ms(20)) == steps


def test_a_fifth_of_a_second_is_six_steps_at_30_hz() -> None:
    assert (
        estimate_of(ms(200)).steps(round(1e9 / 30)) == 7
    )  # 33333333 ns do not quite fit six times
    assert estimate_of(ms(199)).steps(round(1e9 / 30)) == 6


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 0, got -1 ns"):
        LatencyEstimate().add(-1)


@pytest.mark.parametrize(
    "setting",
    [
        {"window": 0},
        {"quantile": 0.49},
        {"quantile": 1.1},
        {"quantile": math.nan},
        {"cold_starts": -1},
    ],
)
def test_impossible_settings_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        estimate_of(**setting)


def test_a_control_period_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="control_period must be positive"):
        LatencyEstimate().steps(0)
