"""A robot begins to move near the plan and at rest, and only where that is known."""

import numpy as np
import pytest

from takt.errors import UsageError
from takt.robot.contract_rules import ContractRules
from takt.robot.joints import Vector
from takt.robot.starting import is_far, is_still

POSITION = ContractRules(max_start_jump=(0.5, 0.1), max_still_step=0.01)
VELOCITY = ContractRules(
    hold_mode="velocity", deceleration=1.0, max_start_jump=(0.5, 0.1), kept=(1,)
)


def at(*values: float) -> Vector:
    return np.array(values)


def test_a_jump_is_measured_per_component_and_its_limit_belongs_to_it() -> None:
    assert not is_far(POSITION, at(0.5, 0.1), at(0, 0), None)
    assert is_far(POSITION, at(0.51, 0), at(0, 0), None)
    assert is_far(POSITION, at(0, -0.11), at(0, 0), None)


def test_the_measured_pose_counts_before_the_last_command() -> None:
    assert is_far(POSITION, at(0, 0), at(9, 0), at(0, 0))
    assert not is_far(POSITION, at(0, 0), None, at(0, 0))


@pytest.mark.parametrize("pose", [None, at(np.nan, 0)])
def test_a_robot_that_nobody_knows_where_it_is_is_far(pose: Vector | None) -> None:
    assert is_far(POSITION, at(0, 0), pose, None)


def test_a_velocity_starts_from_rest_and_a_kept_component_from_its_command() -> None:
    assert not is_far(VELOCITY, at(0.4, 0.8), at(7, 7), at(0, 0.8))
    assert is_far(VELOCITY, at(0.4, 0.8), at(0.4, 0.8), at(0, 0.6))
    assert is_far(VELOCITY, at(0.6, 0), None, None)


def test_without_a_limit_nothing_is_far() -> None:
    assert not is_far(ContractRules(), at(9, 9), None, None)


def test_a_pose_of_another_robot_is_refused() -> None:
    with pytest.raises(UsageError, match=r"pose: expected shape \(2,\), got \(3,\)"):
        is_far(POSITION, at(0, 0), at(0, 0, 0), None)


def test_a_robot_is_still_while_its_pose_stays_within_a_step() -> None:
    assert is_still(POSITION, at(0, 0), at(0.01, 0))
    assert not is_still(POSITION, at(0, 0), at(0.02, 0))


@pytest.mark.parametrize("before", [None, at(0), at(np.nan, 0)])
def test_who_cannot_tell_whether_it_moved_is_not_still(before: Vector | None) -> None:
    assert not is_still(POSITION, before, at(0, 0))


def test_without_a_limit_the_pose_does_not_count() -> None:
    assert is_still(ContractRules(), None, None)
