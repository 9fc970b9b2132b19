"""Impossible numbers are refused before a robot is driven by them."""

from typing import Any

import pytest

from takt.errors import ConfigError
from takt.robot.contract_rules import ContractRules


def test_the_defaults_hold_within_half_a_second_and_wait_for_somebody() -> None:
    rules = ContractRules()

    assert (rules.t_hold, rules.resume, rules.hold_mode) == (500_000_000, "manual", "position")


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"t_hold": 0}, "t_hold must be positive"),
        ({"max_action_age": 0}, "max_action_age must be positive"),
        ({"t_stop": 0}, "t_stop must be positive, got 0 ns; None switches it off"),
        ({"resume_ramp": -1}, "resume_ramp must be at least 0"),
        ({"hold_mode": "torque"}, "hold_mode must be one of position, velocity"),
        ({"hold_mode": "velocity"}, "deceleration must be given"),
        ({"resume": "auto"}, "resume must be one of manual, auto_if_still"),
        ({"resume": "auto_if_still"}, "max_start_jump must be given"),
        ({"max_start_jump": 0.0}, "max_start_jump must be positive"),
        ({"max_still_step": -1.0}, "max_still_step must be positive"),
        ({"kept": (-1,)}, "kept must be distinct positions"),
        ({"degraded_speed": 0.0}, "degraded_speed must lie above 0"),
        ({"max_rejections": 0}, "max_rejections must be at least 1"),
    ],
)
def test_impossible_rules_are_refused(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ContractRules(**rules)


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"kept": (2,)}, "kept"),
        ({"hold_mode": "velocity", "deceleration": (1.0, 1.0, 1.0)}, "deceleration"),
        ({"max_start_jump": (1.0,)}, "max_start_jump"),
        ({"max_still_step": (1.0, 1.0, 1.0)}, "max_still_step"),
    ],
)
def test_rules_for_other_joints_than_those_of_the_actions_are_refused(
    rules: dict[str, Any], named: str
) -> None:
    made = ContractRules(**rules)

    with pytest.raises(ConfigError, match=named):
        made.check_action_dim(2)


def test_rules_that_fit_the_actions_are_taken() -> None:
    ContractRules(kept=(1,), max_start_jump=(1.0, 2.0)).check_action_dim(2)
