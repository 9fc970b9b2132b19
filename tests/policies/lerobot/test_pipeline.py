import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.policies.lerobot.pipeline import Scaling

FIRST = np.array([-1, 2, 0.5], np.float32)
SECOND = np.array([1, 3, 0.5], np.float32)
MODES = ["MEAN_STD", "MIN_MAX", "QUANTILES", "QUANTILE10", "IDENTITY"]


@given(st.sampled_from(MODES), st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=2))
def test_backward_undoes_forward_where_there_is_a_range(mode: str, given: list[float]) -> None:
    scaling = Scaling(mode=mode, first=FIRST[:2], second=SECOND[:2])
    values = np.array(given, np.float32)

    back = scaling.backward(scaling.forward(values))

    np.testing.assert_allclose(back, values, atol=1e-5)


def test_each_mode_has_its_own_formula() -> None:
    values = np.array([[0, 2.5, 0.5]], np.float32)
    mean_std = Scaling(mode="MEAN_STD", first=FIRST, second=SECOND)
    min_max = Scaling(mode="MIN_MAX", first=FIRST, second=SECOND)

    np.testing.assert_allclose(mean_std.forward(values), [[1, 0.5 / 3, 0]], atol=1e-6)
    np.testing.assert_allclose(min_max.forward(values), [[0, 0, -1]], atol=1e-6)
    np.testing.assert_allclose(mean_std.unit, SECOND)
    np.testing.assert_allclose(min_max.unit, [1, 0.5, 5e-9])
    assert min_max.forward(values).dtype == np.float32


@pytest.mark.parametrize("mode", MODES)
def test_a_column_that_never_moves_does_not_divide_by_zero(mode: str) -> None:
    same = np.ones(1, np.float32)
    scaling = Scaling(mode=mode, first=same, second=same if mode != "MEAN_STD" else 0 * same)

    assert np.isfinite(scaling.forward(same)).all()
    assert np.isfinite(scaling.backward(scaling.forward(same))).all()
