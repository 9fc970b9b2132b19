import numpy as np
import pytest

from takt.errors import RefusedError
from takt.policies.finite import check_finite


def test_finite_actions_pass() -> None:
    check_finite(np.full((2, 3), -1e30, np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite_fails_the_row_and_is_named(value: float) -> None:
    actions = np.zeros((2, 3), np.float32)
    actions[1, 2] = value

    with pytest.raises(RefusedError, match=r"action\[1, 2\]") as caught:
        check_finite(actions)

    assert caught.value.code == "failed"
