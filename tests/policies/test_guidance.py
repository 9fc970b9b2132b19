import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import ObservationError
from takt.policies.guidance import (
    Guided,
    Leftover,
    Schedule,
    guidance_of,
    guided_chunking,
    prefix_weights,
    step_times,
)

SCHEDULES: list[Schedule] = ["LINEAR", "EXP", "ZEROS", "ONES"]


def test_linear_weights_fall_between_delay_and_execution_horizon() -> None:
    np.testing.assert_allclose(
        prefix_weights(2, 5, 7, "LINEAR"), [1, 1, 0.75, 0.5, 0.25, 0, 0], atol=1e-7
    )


def test_the_other_schedules_are_all_or_nothing_or_bent() -> None:
    assert prefix_weights(1, 3, 4, "ZEROS").tolist() == [1, 0, 0, 0]
    assert prefix_weights(1, 3, 4, "ONES").tolist() == [1, 1, 1, 0]
    u = np.array([2 / 3, 1 / 3])
    bent = u * (np.exp(u) - 1) / (np.e - 1)
    np.testing.assert_allclose(prefix_weights(1, 3, 4, "EXP")[1:3], bent, atol=1e-7)


@given(st.integers(1, 60), st.integers(0, 59), st.integers(1, 60), st.sampled_from(SCHEDULES))
def test_weights_never_rise_and_stay_in_range(
    horizon: int, delay: int, execution_horizon: int, schedule: Schedule
) -> None:
    delay, reach = min(delay, horizon - 1), min(execution_horizon, horizon)

    weights = prefix_weights(delay, reach, horizon, schedule)

    assert (np.diff(weights) <= 1e-7).all()
    assert weights.max() <= 1
    assert weights.min() >= 0
    assert not weights[reach:].any()
    assert (weights[: min(delay, reach)] == 1).all()


@pytest.mark.parametrize(
    ("delay", "execution_horizon", "schedule", "key"),
    [
        (-1, 5, "LINEAR", "inference_delay"),
        (10, 5, "LINEAR", "inference_delay"),
        (2, 0, "LINEAR", "execution_horizon"),
        (2, 11, "LINEAR", "execution_horizon"),
        (2, 5, "CUBIC", "schedule"),
    ],
)
def test_impossible_steps_are_refused_by_name(
    delay: int, execution_horizon: int, schedule: Schedule, key: str
) -> None:
    with pytest.raises(ObservationError, match=key):
        prefix_weights(delay, execution_horizon, 10, schedule)


def test_guidance_is_largest_at_both_ends() -> None:
    weights = guidance_of(10, 10.0)

    np.testing.assert_allclose(
        weights, [10, 9.11, 4.25, 2.76, 2.17, 2, 2.17, 2.76, 4.25, 9.11], atol=5e-3
    )
    assert guidance_of(10, 3.0).max() == 3


def test_steps_start_at_one_and_end_before_zero() -> None:
    np.testing.assert_allclose(step_times(4), [1, 0.75, 0.5, 0.25])


def chunked(
    rows: np.ndarray, delay: int = 2, digest: str = "d", execution_horizon: int = 8
) -> Guided:
    return guided_chunking(
        Leftover(rows, digest),
        digest="d",
        delay=delay,
        execution_horizon=execution_horizon,
        horizon=10,
        model_action_dim=6,
    )


def test_a_leftover_is_padded_and_the_horizon_cut_to_it() -> None:
    made = chunked(np.ones((5, 4), np.float32))

    assert made.chunking is not None
    made.chunking.check(10, 6)
    assert made.chunking.previous_chunk.sum() == 20
    np.testing.assert_array_equal(made.chunking.prefix_weights, prefix_weights(2, 5, 10))
    assert made.chunking.frozen_steps == 2


def test_a_chunk_that_comes_when_all_of_the_last_one_is_executed_is_guided_too() -> None:
    made = chunked(np.ones((10, 4), np.float32), delay=10, execution_horizon=10)

    assert made.chunking is not None
    made.chunking.check(10, 6)
    assert made.chunking.frozen_steps == 9


def test_the_leftover_of_another_model_is_not_used_and_the_answer_says_why() -> None:
    made = chunked(np.ones((5, 4), np.float32), digest="other")

    assert made.chunking is None
    assert "other" in made.reason


@pytest.mark.parametrize(
    ("rows", "delay", "key"),
    [
        (np.ones((5, 4)), 6, "inference_delay"),
        (np.ones((5, 4)), -1, "inference_delay"),
        (np.ones((0, 4)), 0, "previous_chunk"),
        (np.ones((5, 7)), 0, "previous_chunk"),
        (np.ones(5), 0, "previous_chunk"),
        (np.ones((5, 2, 2)), 0, "previous_chunk"),
        (np.full((5, 4), np.nan), 0, "previous_chunk"),
    ],
)
def test_a_leftover_that_does_not_fit_is_refused(rows: np.ndarray, delay: int, key: str) -> None:
    with pytest.raises(ObservationError, match=key):
        chunked(rows, delay)
