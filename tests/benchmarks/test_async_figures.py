from typing import Any

import numpy as np
import pytest
from benchmarks.client.async_figures import bound_of, compared, interval_of, paired, summed_up
from hypothesis import given
from hypothesis import strategies as st


def episode(start: int, ticks: int, *, solved: bool = True, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "task": "a task",
        "start": start,
        "is_solved": solved,
        "ticks": ticks,
        "first_action_tick": 8,
        "executed": 40,
        "inferences": 5,
        "starved": 0,
        "splice_steps": [0.25],
        "splice_shifts": [],
        "jerk_m_s3": 1.0,
        "ages": [0.0, 1.0],
        **more,
    }


def test_the_bound_is_two_where_answer_and_execution_take_the_same_time() -> None:
    assert bound_of(1.0) == 2.0
    assert bound_of(4.0) == 1.25
    assert bound_of(0.5) == 1.5


@given(st.floats(0.01, 100))
def test_no_bound_is_above_two_and_none_below_one(x: float) -> None:
    assert 1.0 < bound_of(x) <= 2.0


def test_a_bound_without_execution_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        bound_of(0.0)


def test_times_are_compared_where_both_solved_and_success_everywhere() -> None:
    base = [episode(0, 108), episode(1, 208), episode(2, 480, solved=False)]
    arm = [episode(0, 58), episode(1, 480, solved=False), episode(2, 58), episode(3, 1)]

    found = compared(base, arm)

    assert found["pairs"] == 3
    assert found["both_solved"] == 1
    assert found["speedup"]["value"] == round(108 / 58, 4)
    assert found["speedup_moving"]["value"] == 2.0
    assert found["success_difference"]["value"] == 0.0


def test_a_speed_is_its_pace_times_its_actions() -> None:
    base = [episode(0, 88, executed=40), episode(1, 108, executed=50)]
    arm = [episode(0, 58, executed=50), episode(1, 68, executed=60)]

    found = compared(base, arm)

    product = found["pace"]["value"] * found["actions"]["value"]
    assert found["speedup_moving"]["value"] == pytest.approx(product, rel=1e-3)


def test_what_is_always_the_same_has_an_interval_without_width() -> None:
    base = [episode(start, 108) for start in range(6)]
    arm = [episode(start, 58) for start in range(6)]

    assert compared(base, arm)["speedup_moving"]["interval_95"] == (2.0, 2.0)


def test_an_interval_holds_the_value_and_narrows_with_more_starts() -> None:
    rng = np.random.default_rng(1)
    widths: list[float] = []
    for count in (10, 1000):
        values = rng.normal(5.0, 1.0, count)
        low, high = interval_of(lambda drawn, v=values: v[drawn].mean(-1), count) or (0, 0)
        assert low < values.mean() < high
        widths.append(high - low)

    assert widths[1] < widths[0] / 5


def test_nothing_has_no_interval_and_no_ratio() -> None:
    assert interval_of(lambda drawn: drawn.mean(-1), 0) is None
    found = compared([], [])
    assert found["speedup"] is None
    assert found["success_difference"] is None


def test_pairs_are_found_by_task_and_start() -> None:
    one, other = [episode(1, 5), episode(2, 6)], [episode(2, 7), episode(9, 8)]

    assert paired(one, other) == [(one[1], other[0])]


def test_an_arm_is_summed_up_per_minute_of_motion() -> None:
    found = summed_up([episode(0, 68, starved=3), episode(1, 68)], period_s=0.5)

    assert found["solved"] == 2
    assert found["completion_s"]["mean"] == 34.0
    assert found["starved_per_minute"] == 3.0
    assert found["executed_per_inference"] == 8.0
    assert found["splice_step"] == {"p50": 0.25, "p90": 0.25, "p99": 0.25, "count": 2}
