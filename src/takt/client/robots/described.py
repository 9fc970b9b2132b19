"""What a robot may tell of itself, and whether it fits the model that is to drive it.

Two arms of six joints take each other's actions without an error and go somewhere else. A robot
that names its components, their order and their units is therefore compared with the model's card
before anything of the model is executed. Robots that tell nothing stay valid, and what only one
side tells is not compared.

Start reading at :func:`check_fit`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from takt.client.loop_settings import Robot
from takt.errors import ConfigError, UsageError
from takt.schema.spec import AxisSpec, PolicySpec

__all__ = [
    "Axis",
    "DescribedRobot",
    "RobotDescription",
    "RobotMismatchError",
    "check_fit",
    "description_of",
]

_Vector: TypeAlias = Literal["action", "state"]


@dataclass(frozen=True, slots=True)
class Axis:
    """One component of an action or of a state."""

    name: str
    """Name, as the policy's training data spells it, such as ``shoulder_pan.pos``."""
    unit: str = ""
    """Unit, as the model's card spells it, such as ``rad``; empty when it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotDescription:
    """The components a robot has, in order."""

    action: tuple[Axis, ...] = ()
    """Of what :meth:`act` takes; empty: not told."""
    state: tuple[Axis, ...] = ()
    """Of the state that :meth:`observe` gives; empty: not told."""

    def __post_init__(self) -> None:
        for vector, axes in (("action", self.action), ("state", self.state)):
            names = [axis.name for axis in axes]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise UsageError(f"{vector}: the name {twice!r} is given twice")


@runtime_checkable
class DescribedRobot(Robot, Protocol):
    """A robot that also says what its components are. It is asked once, before it moves."""

    def describe(self) -> RobotDescription:
        """Names and units, in the order of the vectors."""
        ...


class RobotMismatchError(ConfigError):
    """Robot and model are not made for each other; nothing was executed.

    Args:
        vector: ``action`` or ``state``.
        robot: What the robot has, in words.
        model: What the model has.
    """

    code = "features"

    def __init__(self, vector: _Vector, *, robot: str, model: str) -> None:
        super().__init__(f"{vector}: the robot has {robot}, the model {model}")
        self.vector: _Vector = vector
        self.robot = robot
        self.model = model


def description_of(robot: Robot) -> RobotDescription | None:
    """What a robot tells of itself; None: nothing.

    Raises:
        UsageError: Its ``describe`` returns something else.
    """
    if not isinstance(robot, DescribedRobot):
        return None
    told = robot.describe()
    if not isinstance(told, RobotDescription):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"describe() must return a RobotDescription, got {type(told).__name__}")
    return told


def check_fit(description: RobotDescription, spec: PolicySpec) -> None:
    """Compare a robot with a model: how many components, their names in order, their units.

    A model that takes any number of components (``sizes_are_maxima``) is compared only with its
    maximum. A unit that one side does not tell is not compared.

    Args:
        description: What the robot tells.
        spec: The model's card.

    Raises:
        RobotMismatchError: They differ; the message names the first difference on both sides.
    """
    limits = spec.sizes_are_maxima
    observation, action = spec.observation, spec.action
    _compare("action", description.action, action.axes, action.action_dim, is_maximum=limits)
    _compare(
        "state", description.state, observation.state, observation.state_dim, is_maximum=limits
    )


def _compare(
    vector: _Vector,
    robot: Sequence[Axis],
    model: Sequence[AxisSpec],
    model_dim: int,
    *,
    is_maximum: bool,
) -> None:
    reads_none = vector == "state" and model_dim == 0  # what a policy does not read may be anything
    if not robot or reads_none:
        return
    fits = len(robot) <= model_dim if is_maximum else len(robot) == model_dim
    if not fits:
        most = "at most " if is_maximum else ""
        raise RobotMismatchError(
            vector,
            robot=f"{len(robot)} components ({_names(robot)})",
            model=f"{most}{model_dim} components" + (f" ({_names(model)})" if model else ""),
        )
    for place, (ours, theirs) in enumerate(zip(robot, model, strict=False)):
        is_other_unit = ours.unit and theirs.unit and ours.unit != theirs.unit
        if ours.name != theirs.name or is_other_unit:
            raise RobotMismatchError(
                vector,
                robot=f"{_in_words(ours)} at place {place}",
                model=_in_words(theirs),
            )


def _names(axes: Sequence[Axis] | Sequence[AxisSpec]) -> str:
    return ", ".join(axis.name for axis in axes)


def _in_words(axis: Axis | AxisSpec) -> str:
    return f"{axis.name!r} in {axis.unit}" if axis.unit else repr(axis.name)
