"""What is within the limits passes as it is; what is not is counted, and bounded if so wished."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from takt.errors import ConfigError, UsageError
from takt.robot.guard import Guard, GuardLimits, GuardMode
from takt.schema.spec import ActionSpec, AxisSpec
from takt.units import SECOND, ms


def guard_of(mode: GuardMode = "enforce", **limits: Any) -> Guard:  # noqa: ANN401 - of GuardLimits
    return Guard(GuardLimits(**{"action_dim": 1, **limits}), control_period=ms(20), mode=mode)


def column(*values: float) -> NDArray[np.float64]:
    return np.array(values, np.float64)[:, np.newaxis]


def passed(guard: Guard, *values: float, previous: float | None = None) -> list[float] | None:
    """What becomes of actions of one component."""
    start = None if previous is None else np.array([previous])
    actions = guard.check(column(*values), start).actions
    return None if actions is None else actions[:, 0].tolist()


def test_a_clean_chunk_passes_as_the_very_same_object() -> None:
    chunk = column(0, 0.5, 1)
    guard = guard_of(low=(0.0,), high=(1.0,), max_step=0.5, max_velocity=25.0)

    verdict = guard.check(chunk, np.array([0.0]))

    assert verdict.actions is chunk
    assert verdict.is_clean
    assert (guard.checked, guard.counts) == (1, {})


@pytest.mark.parametrize("mode", ["observe", "enforce"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_never_pass(mode: GuardMode, wrong: float) -> None:
    guard = guard_of(mode)

    verdict = guard.check(column(0, wrong, wrong))

    assert verdict.actions is None
    assert verdict.violations == {"non_finite": 2} == guard.counts


def test_a_robot_that_does_not_know_where_it_stands_gets_nothing() -> None:
    assert passed(guard_of(), 0.0, previous=math.nan) is None


def test_actions_out_of_range_are_brought_within() -> None:
    guard = guard_of(low=(0.0,), high=(1.0,))

    assert passed(guard, -3, 0.5, 2) == [0, 0.5, 1]
    assert guard.counts == {"range": 2}


def test_steps_are_limited_from_the_command_before_on() -> None:
    guard = guard_of(max_step=1.0)

    assert passed(guard, 5, 5, 5, previous=2) == [3, 4, 5]
    assert guard.counts == {"step": 1}


def test_without_a_command_before_the_first_action_may_be_anywhere_in_range() -> None:
    assert passed(guard_of(max_step=1.0), 5, 5.5) == [5, 5.5]


def test_a_velocity_limits_the_step_by_the_control_period() -> None:
    guard = guard_of(max_velocity=50.0)  # 1 per tick of 20 ms

    assert passed(guard, 0, 3, 3) == [0, 1, 2]
    assert guard.counts == {"velocity": 1}


def test_the_tighter_of_two_limits_counts() -> None:
    assert passed(guard_of(max_step=0.5, max_velocity=50.0), 0, 3) == [0, 0.5]
    assert passed(guard_of(max_step=2.0, max_velocity=50.0), 0, 3) == [0, 1]


def test_a_robot_outside_its_range_may_come_back_and_not_go_further_out() -> None:
    guard = guard_of(high=(1.0,), max_step=0.5)

    assert passed(guard, 3, 2.8, 2.0, 0.0, previous=2) == [2, 2, 2, 1.5]


def test_who_only_observes_counts_and_changes_nothing() -> None:
    chunk = column(0, 9, -9)
    guard = guard_of("observe", high=(1.0,), max_step=1.0)

    verdict = guard.check(chunk)

    assert verdict.actions is chunk
    assert guard.counts == {"range": 1, "step": 2}


def test_limits_hold_joint_by_joint() -> None:
    guard = guard_of(action_dim=2, high=(None, 1.0), max_step=(0.5, 10.0))

    actions = guard.check(np.array([[0, 0], [9, 9.0]])).actions

    assert actions is not None
    assert actions.tolist() == [[0, 0], [0.5, 1.0]]


def test_a_chunk_is_not_modified_and_its_copy_cannot_be() -> None:
    chunk = column(9)

    verdict = guard_of(high=(1.0,)).check(chunk)

    assert chunk.tolist() == [[9]]
    assert verdict.actions is not None
    assert not verdict.actions.flags.writeable


def test_a_single_command_is_looked_at_like_a_chunk() -> None:
    guard = guard_of(max_step=1.0)
    clean, wild, broken = np.array([0.5]), np.array([7.0]), np.array([math.nan])
    start = np.array([0.0])

    assert guard.check_action(clean, start).actions is clean
    bounded = guard.check_action(wild, start).actions
    assert bounded is not None
    assert bounded.tolist() == [1.0]
    assert guard.check_action(broken, start).actions is None
    assert guard_of("observe", max_step=1.0).check_action(wild, start).actions is wild


def test_integers_are_bounded_in_floats() -> None:
    actions = guard_of(max_step=0.5).check(np.array([[0], [2]], np.int16)).actions

    assert actions is not None
    assert actions.tolist() == [[0], [0.5]]


def test_an_empty_chunk_is_clean() -> None:
    chunk = np.zeros((0, 1))

    assert guard_of(max_step=1.0).check(chunk, np.array([0.0])).actions is chunk


numbers = st.one_of(
    st.floats(-2, 2, width=32), st.sampled_from([0.0, 0.1, 0.2, 0.30000001192092896, 1e30])
)


@given(
    arrays.arrays(
        st.sampled_from([np.float32, np.float64]),
        st.tuples(st.integers(1, 6), st.just(2)),
        elements=numbers,
    ),
    st.one_of(st.none(), arrays.arrays(np.float64, 2, elements=numbers)),
    st.one_of(st.none(), st.floats(0.01, 2)),
    st.one_of(st.none(), st.floats(0.01, 50)),
    st.tuples(st.floats(-1, 0), st.floats(0.01, 1)),
)
def test_what_was_bounded_once_is_clean(
    chunk: NDArray[Any],
    previous: NDArray[Any] | None,
    max_step: float | None,
    max_velocity: float | None,
    bounds: tuple[float, float],
) -> None:
    low, high = bounds
    guard = guard_of(
        action_dim=2,
        low=(low, low),
        high=(high, high),
        max_step=max_step,
        max_velocity=max_velocity,
    )
    first = guard.check(chunk, previous)
    assert first.actions is not None

    second = guard.check(first.actions, previous)

    assert second.is_clean
    assert second.actions is first.actions
    if previous is None:
        exact = first.actions.astype(np.float64)  # a float32 must not lie beyond by rounding
        assert ((exact >= low) & (exact <= high)).all()


def test_the_bounds_of_a_policy_are_taken_over() -> None:
    spec = ActionSpec(
        action_dim=2,
        model_action_dim=2,
        horizon=4,
        execution_horizon=4,
        axes=(AxisSpec(name="a", low=-1), AxisSpec(name="b", high=2)),
    )

    limits = GuardLimits.of(spec, max_step=0.5)

    assert (limits.low, limits.high, limits.max_step) == ((-1, None), (None, 2), 0.5)
    assert (
        GuardLimits.of(
            ActionSpec(action_dim=1, model_action_dim=1, horizon=1, execution_horizon=1)
        ).low
        is None
    )


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"action_dim": 0}, "action_dim must be at least 1"),
        ({"max_step": 0.0}, "max_step must be positive"),
        ({"max_velocity": (1.0, 2.0)}, "max_velocity has 2 numbers"),
        ({"low": (1.0,), "high": (1.0,)}, "low must lie below high"),
        ({"low": (math.nan,)}, "low must lie below high"),
        ({"low": (0.0, 0.0)}, "2 bounds do not fit actions of 1"),
    ],
)
def test_impossible_limits_are_refused(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        guard_of(**limits)


def test_an_impossible_guard_is_refused() -> None:
    limits = GuardLimits(action_dim=1)
    with pytest.raises(ConfigError, match="control_period must be positive"):
        Guard(limits, control_period=0)
    with pytest.raises(ConfigError, match="mode must be observe or enforce"):
        Guard(limits, control_period=SECOND, mode="off")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "chunk", [np.zeros(1), np.zeros((2, 2)), np.zeros((1, 1), np.bool_), np.array([["a"]])]
)
def test_what_is_no_chunk_of_these_actions_is_refused(chunk: NDArray[Any]) -> None:
    with pytest.raises(UsageError, match="actions: expected numbers of shape"):
        guard_of().check(chunk)


def test_a_command_before_of_another_shape_is_refused() -> None:
    with pytest.raises(UsageError, match=r"previous: expected shape \(1,\), got \(2,\)"):
        guard_of().check(column(0), np.zeros(2))
