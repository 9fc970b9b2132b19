from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.client.robots.described import (
    Axis,
    RobotDescription,
    RobotMismatchError,
    check_fit,
    description_of,
)
from takt.errors import ConfigError, UsageError
from takt.policies.echo import EchoOptions, echo_spec
from takt.schema.spec import ActionSpec, AxisSpec, ObservationSpec, PolicySpec

JOINTS = ("shoulder.pos", "elbow.pos", "gripper.pos")
names = st.lists(st.sampled_from([*"abcdefgh"]), min_size=1, max_size=5, unique=True)


def card(
    action: tuple[AxisSpec, ...], state: tuple[AxisSpec, ...] = (), *, action_dim: int = 0
) -> PolicySpec:
    """A model's card whose components are these."""
    dim = action_dim or len(action)
    return replace(
        echo_spec("arm", EchoOptions()),
        observation=ObservationSpec(state_dim=len(state), state=state),
        action=ActionSpec(
            action_dim=dim, model_action_dim=dim, horizon=8, execution_horizon=4, axes=action
        ),
        sizes_are_maxima=False,
    )


def model(*axes: str, unit: str = "") -> tuple[AxisSpec, ...]:
    return tuple(AxisSpec(name=name, unit=unit) for name in axes)


def robot(*axes: str, unit: str = "") -> tuple[Axis, ...]:
    return tuple(Axis(name, unit) for name in axes)


class Arm:
    """A robot that tells what it is given to tell."""

    def __init__(self, told: Any) -> None:  # noqa: ANN401
        self._told = told

    def observe(self) -> dict[str, object]:
        return {}

    def act(self, action: np.ndarray, /) -> None:
        pass

    def describe(self) -> RobotDescription:
        return self._told


class Plain:
    """A robot that tells nothing."""

    def observe(self) -> dict[str, object]:
        return {}

    def act(self, action: np.ndarray, /) -> None:
        pass


def test_a_robot_with_the_models_names_order_and_units_fits() -> None:
    description = RobotDescription(
        action=robot(*JOINTS, unit="deg"), state=robot(*JOINTS, unit="deg")
    )

    check_fit(description, card(model(*JOINTS, unit="deg"), model(*JOINTS, unit="deg")))


@pytest.mark.parametrize(
    ("ours", "theirs", "robot_said", "model_said"),
    [
        (
            robot("a", "b"),
            model("a", "b", "c"),
            "2 components (a, b)",
            "3 components (a, b, c)",
        ),
        (robot("b", "a"), model("a", "b"), "'b' at place 0", "'a'"),
        (robot("a", unit="deg"), model("a", unit="rad"), "'a' in deg at place 0", "'a' in rad"),
    ],
)
def test_a_mismatch_names_both_sides(
    ours: tuple[Axis, ...], theirs: tuple[AxisSpec, ...], robot_said: str, model_said: str
) -> None:
    with pytest.raises(RobotMismatchError) as raised:
        check_fit(RobotDescription(action=ours), card(theirs))

    assert (raised.value.robot, raised.value.model) == (robot_said, model_said)
    assert str(raised.value) == f"action: the robot has {robot_said}, the model {model_said}"
    assert isinstance(raised.value, ConfigError)
    assert raised.value.code == "features"


def test_a_state_is_compared_as_an_action_is() -> None:
    with pytest.raises(RobotMismatchError, match="state: the robot has 'x'"):
        check_fit(RobotDescription(state=robot("x")), card(model("a"), model("y")))


def test_what_one_side_does_not_tell_is_not_compared() -> None:
    check_fit(RobotDescription(), card(model("a", "b", unit="rad")))
    check_fit(RobotDescription(action=robot("a")), card(model("a", unit="rad")))
    check_fit(RobotDescription(action=robot("a", "b")), card((), action_dim=2))
    check_fit(RobotDescription(action=robot("a"), state=robot("x")), card(model("a")))


def test_a_model_without_names_still_has_a_number_of_components() -> None:
    with pytest.raises(RobotMismatchError, match=r"the model 3 components$"):
        check_fit(RobotDescription(action=robot("a", "b")), card((), action_dim=3))


def test_a_model_of_any_size_takes_up_to_its_most() -> None:
    spec = echo_spec("echo", EchoOptions())

    check_fit(RobotDescription(action=robot(*JOINTS)), spec)
    too_wide = RobotDescription(action=robot(*map(str, range(spec.action.action_dim + 1))))
    with pytest.raises(RobotMismatchError, match="at most"):
        check_fit(too_wide, spec)


@given(names, names)
def test_only_the_same_names_in_the_same_order_fit(ours: list[str], theirs: list[str]) -> None:
    description = RobotDescription(action=robot(*ours))

    if ours == theirs:
        check_fit(description, card(model(*theirs)))
    else:
        with pytest.raises(RobotMismatchError):
            check_fit(description, card(model(*theirs)))


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="action: the name 'a' is given twice"):
        RobotDescription(action=robot("a", "b", "a"))


def test_a_robot_need_not_tell_anything() -> None:
    assert description_of(Plain()) is None
    assert description_of(Arm(RobotDescription(action=robot("a")))) is not None


def test_a_description_of_another_kind_is_refused_and_not_ignored() -> None:
    with pytest.raises(UsageError, match="must return a RobotDescription, got str"):
        description_of(Arm("six joints"))
