"""Limits for all joints or one by one."""

import math

import numpy as np
import pytest

from takt.errors import ConfigError
from takt.robot.joints import JointLimit, check_components, check_limit, widened


def test_one_limit_counts_for_every_joint_and_none_is_infinite() -> None:
    np.testing.assert_array_equal(widened("max_step", 0.5, 3), [0.5, 0.5, 0.5])
    np.testing.assert_array_equal(widened("max_step", (1.0, 2.0), 2), [1, 2])
    np.testing.assert_array_equal(widened("max_step", None, 2), [math.inf, math.inf])


def test_limits_of_another_number_of_joints_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_step has 2 numbers for actions of 3"):
        widened("max_step", (1.0, 2.0), 3)


@pytest.mark.parametrize("limit", [0.0, -1.0, math.inf, math.nan, (), (1.0, 0.0)])
def test_a_limit_that_limits_nothing_or_everything_is_refused(limit: JointLimit) -> None:
    with pytest.raises(ConfigError, match="max_step must be positive and finite"):
        check_limit("max_step", limit)


def test_no_limit_is_spelled_none() -> None:
    check_limit("max_step", None)


@pytest.mark.parametrize("components", [(-1,), (0, 0)])
def test_components_are_distinct_positions(components: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="kept must be distinct positions"):
        check_components("kept", components)
