"""Chunks join by named formulas, or a function of one's own, timestep by timestep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from takt.errors import ConfigError, UsageError
from takt.robot.action_queue import (
    ActionQueue,
    ChunkOrigin,
    MergeRule,
    TimedChunk,
    latest_only,
)
from takt.robot.blending import WEIGHTS, Blend, MergeName, merge_rule
from takt.robot.joints import Vector

LEROBOT = {
    "weighted_average": lambda old, new: 0.3 * old + 0.7 * new,
    "latest_only": lambda _old, new: new,
    "average": lambda old, new: 0.5 * old + 0.5 * new,
    "conservative": lambda old, new: 0.7 * old + 0.3 * new,
}


def column(*values: float) -> NDArray[np.float64]:
    return np.array(values, np.float64)[:, np.newaxis]


def executed(rule: MergeRule[Vector], *chunks: tuple[int, Vector], ticks: int = 0) -> list[float]:
    """First component of the actions left after the chunks, ``ticks`` executed after the first."""
    queue: ActionQueue[Vector] = ActionQueue(rule)
    for number, (first_timestep, actions) in enumerate(chunks):
        queue.merge(first_timestep, actions)
        queue.advance(0 if number else ticks)
    return [float(action[0]) for _ in range(queue.remaining) if (action := queue.pop()) is not None]


@pytest.mark.parametrize("name", list(LEROBOT))
@given(old=st.floats(-10, 10), new=st.floats(-10, 10))
def test_a_named_rule_computes_what_lerobots_does(name: MergeName, old: float, new: float) -> None:
    left = executed(merge_rule(name), (0, column(old)), (0, column(new)))

    assert left == [LEROBOT[name](old, new)]


def test_the_names_are_those_of_lerobot() -> None:
    assert set(WEIGHTS) == set(LEROBOT)


def test_latest_only_reads_no_action() -> None:
    assert merge_rule("latest_only") is latest_only


def test_only_timesteps_that_both_plans_have_are_blended() -> None:
    old, new = column(0, 0, 0, 0), column(10, 10, 10, 10)

    left = executed(merge_rule("average"), (0, old), (2, new))

    assert left == [5, 5, 10, 10]


def test_executed_timesteps_are_neither_blended_nor_executed_again() -> None:
    seen: list[tuple[float, float]] = []

    def note(old: Vector, new: Vector) -> Vector:
        seen.append((float(old[0]), float(new[0])))
        return new

    left = executed(merge_rule(note), (0, column(0, 1, 2)), (0, column(10, 11, 12, 13)), ticks=2)

    assert seen == [(2, 12)]
    assert left == [12, 13]


def test_a_gripper_is_not_blended() -> None:
    queue: ActionQueue[Vector] = ActionQueue(merge_rule("average", kept=(1,)))
    queue.merge(0, np.array([[0.0, 1.0]]))
    queue.merge(0, np.array([[1.0, 0.0]]))

    action = queue.pop()

    assert action is not None
    assert action.tolist() == [0.5, 0.0]


def test_blending_modifies_neither_chunk_and_what_it_gives_cannot_be_modified() -> None:
    old, new = column(1, 2), column(3, 4)
    queue: ActionQueue[Vector] = ActionQueue(merge_rule("average"))
    queue.merge(0, old)
    queue.merge(0, new)

    action = queue.pop()

    assert action is not None
    assert (old[:, 0].tolist(), new[:, 0].tolist()) == ([1, 2], [3, 4])
    with pytest.raises(ValueError, match="read-only"):
        action[0] = 0


def test_a_blend_keeps_the_precision_of_the_chunk() -> None:
    queue: ActionQueue[Vector] = ActionQueue(merge_rule("conservative"))
    queue.merge(0, column(1).astype(np.float32))
    queue.merge(0, column(2).astype(np.float32))

    action = queue.pop()

    assert action is not None
    assert action.dtype == np.float32


def test_an_action_says_whether_it_is_blended_and_where_its_newest_part_is_from() -> None:
    queue: ActionQueue[Vector] = ActionQueue(merge_rule("average"))
    queue.merge(0, column(0, 0), ChunkOrigin(0, observed=10))
    queue.merge(1, column(1, 1), ChunkOrigin(1, observed=20))

    seen = []
    while (action := queue.peek()) is not None:
        seen.append((action.timestep, action.is_blended, action.origin))
        queue.advance(1)

    newest = ChunkOrigin(1, observed=20)
    assert seen == [(1, True, newest), (2, False, newest)]


def test_lists_of_actions_are_blended_too() -> None:
    rows = [np.array([1.0]), np.array([2.0])]

    queue: ActionQueue[Vector] = ActionQueue(merge_rule("average"))
    queue.merge(0, rows)
    queue.merge(0, [np.array([3.0]), np.array([4.0])])

    assert [float(a[0]) for _ in range(2) if (a := queue.pop()) is not None] == [2.0, 3.0]


@given(
    st.sampled_from(list(WEIGHTS)),
    st.integers(0, 20),
    st.floats(0.01, 1),
    st.integers(1, 30),
)
def test_a_late_plan_of_the_same_ramp_never_pulls_a_robot_back(
    name: MergeName, latency: int, slope: float, horizon: int
) -> None:
    """The saw-tooth: a chunk is as old as its answer was late, and must be aligned by timestep."""
    queue: ActionQueue[Vector] = ActionQueue(merge_rule(name))
    queue.merge(0, column(*(slope * t for t in range(30))))
    sent = [float(a[0]) for _ in range(latency) if (a := queue.pop()) is not None]
    queue.merge(0, column(*(slope * t for t in range(latency + horizon))))
    sent += [float(a[0]) for _ in range(queue.remaining) if (a := queue.pop()) is not None]

    steps = np.diff(sent)
    assert (steps > 0).all()
    assert (steps <= 2 * slope).all()


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="no merge rule 'newest'; there are: latest_only, "):
        merge_rule("newest")  # pyright: ignore[reportArgumentType]


def short(old: Vector, new: Vector) -> Vector:
    return new[:0]


@pytest.mark.parametrize(
    ("rule", "kept", "second"),
    [
        ("average", (), np.zeros((1, 3))),
        ("average", (2,), np.zeros((1, 2))),
        (short, (), np.zeros((1, 2))),
    ],
    ids=["another shape", "no such component", "a function of another shape"],
)
def test_actions_that_do_not_fit_are_refused(
    rule: MergeName | Blend, kept: tuple[int, ...], second: Vector
) -> None:
    queue: ActionQueue[Vector] = ActionQueue(merge_rule(rule, kept=kept))
    queue.merge(0, np.zeros((1, 2)))

    with pytest.raises(UsageError, match="shape"):
        queue.merge(0, second)


def test_a_merge_function_that_makes_nan_is_refused() -> None:
    def no_number(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        return (old + new) * np.nan

    queued = TimedChunk(0, np.ones((4, 2)))

    with pytest.raises(UsageError, match="NaN"):
        merge_rule(no_number)(queued, TimedChunk(2, np.ones((4, 2))), 2)


def test_a_function_that_fills_the_same_array_every_time_blends_every_action() -> None:
    buffer = np.zeros(1)

    def into_buffer(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        return np.add(old, new, out=buffer)

    queued, arrived = np.arange(4.0)[:, None], np.full((4, 1), 10.0)
    plan = merge_rule(into_buffer)(TimedChunk(0, queued), TimedChunk(0, arrived), 0)

    np.testing.assert_array_equal(np.asarray(plan.actions)[:, 0], [10.0, 11.0, 12.0, 13.0])


@pytest.mark.parametrize("error", [TypeError("lerp(): not a Tensor"), AttributeError("no 'lerp'")])
def test_a_function_that_takes_no_arrays_is_told_how_it_would(error: Exception) -> None:
    def for_tensors(old: Vector, new: Vector) -> Vector:
        raise error

    rule = merge_rule(for_tensors)

    with pytest.raises(UsageError, match=r"did not take NumPy arrays \(.*lerp.*from_torch"):
        rule(TimedChunk(0, column(1.0)), TimedChunk(0, column(2.0)), 0)
