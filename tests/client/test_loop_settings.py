import pytest

from takt.client.loop_settings import LoopSettings
from takt.errors import ConfigError
from takt.robot.contract_rules import ContractRules
from takt.robot.guard import GuardLimits
from takt.robot.replanning import ThresholdRule
from takt.units import ms


def test_a_control_rate_is_a_whole_multiple_of_the_policys() -> None:
    settings = LoopSettings(control_hz=120.0, policy_hz=30.0)

    assert settings.commands_per_action == 4
    assert settings.action_period == 4 * settings.control_period


def test_without_a_rate_of_its_own_a_policy_has_the_loops() -> None:
    settings = LoopSettings(control_hz=50.0)

    assert (settings.action_hz, settings.commands_per_action) == (50.0, 1)
    assert settings.control_period == settings.action_period == ms(20)


def test_sync_asks_with_an_empty_queue_whatever_the_rule_says() -> None:
    settings = LoopSettings(sync=True, rule=ThresholdRule(threshold=0.9))

    assert settings.asking_rule == ThresholdRule(threshold=0)
    assert LoopSettings(rule=ThresholdRule(threshold=0.9)).asking_rule == settings.rule


def test_settings_in_words_name_the_limits_that_protect_the_robot() -> None:
    words = LoopSettings(merge=lambda old, new: new).in_words()

    assert words["t_hold_ms"] == 500
    assert words["max_action_age_ms"] == 2000
    assert words["merge"] == "function"
    assert words["leftovers"] is True
    assert words["guard"] == "none"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"control_hz": 0.0}, "control_hz"),
        ({"control_hz": float("nan")}, "control_hz"),
        ({"policy_hz": -1.0}, "policy_hz"),
        ({"control_hz": 50.0, "policy_hz": 30.0}, "whole multiple"),
        ({"control_hz": 10.0, "policy_hz": 30.0}, "whole multiple"),
        ({"max_faults": 0}, "max_faults"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, float], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        LoopSettings(**options)  # type: ignore[arg-type]


def test_a_contract_for_other_joints_than_those_of_the_limits_is_refused() -> None:
    with pytest.raises(ConfigError, match="kept"):
        LoopSettings(contract=ContractRules(kept=(6,)), limits=GuardLimits(action_dim=6))


def test_the_actions_that_may_be_young_enough_are_those_of_the_greatest_age() -> None:
    settings = LoopSettings(
        control_hz=50.0, policy_hz=25.0, contract=ContractRules(max_action_age=ms(100))
    )

    assert settings.most_actions == 3  # 0, 40 and 80 ms after the observation
