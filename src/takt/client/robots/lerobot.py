"""A LeRobot ``Robot`` object driven by a control loop. LeRobot itself is not imported.

State and actions are vectors in the order of the robot's own features; their names are what
LeRobot calls them, such as ``shoulder_pan.pos``, so a model trained on this robot's data names the
same. The units are a setting of the robot (``use_degrees``) that its features do not tell; the
caller does.

``get_observation`` waits for every camera the robot was built with, and a control loop must not
wait. Build the robot with ``cameras={}``, and read its cameras beside it::

    cameras = Cameras(camera_reader({"front": camera}), rate_hz=10)
    loop = ControlLoop(LeRobotRobot(robot, task="..."), connect, settings, cameras=cameras)

Start reading at :class:`LeRobotRobot`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from takt.client.robots.described import Axis, RobotDescription
from takt.errors import UsageError
from takt.robot.joints import Vector

__all__ = [
    "LeRobotCamera",
    "LeRobotDevice",
    "LeRobotRobot",
    "camera_reader",
    "lerobot_units",
]

_STATE = "observation/state"
_GRIPPER = "gripper"


class LeRobotDevice(Protocol):
    """What is used of ``lerobot.robots.Robot``. It must be connected."""

    @property
    def is_connected(self) -> bool:
        """Whether motors and cameras are open."""
        ...

    @property
    def observation_features(self) -> Mapping[str, Any]:
        """``float`` for a motor, a shape for a camera, by name."""
        ...

    @property
    def action_features(self) -> Mapping[str, Any]:
        """``float``, by name."""
        ...

    def get_observation(self) -> Mapping[str, Any]:
        """What it measures and sees."""
        ...

    def send_action(self, action: dict[str, Any], /) -> object:
        """Move."""
        ...


class LeRobotCamera(Protocol):
    """What is used of ``lerobot.cameras.Camera``. It must be connected."""

    def async_read(self) -> Any:  # noqa: ANN401 - no annotations there that all versions share
        """The next picture, ``(height, width, 3)``; waits for it."""
        ...


class LeRobotRobot:
    """A connected robot. The caller connects and disconnects it.

    Args:
        robot: LeRobot's object.
        task: The instruction.
        units: Unit of every state and action by its name, or one for all; see
            :func:`lerobot_units`. Empty: not known, and not compared with the model's.
        cameras: The policy's key for each camera of the robot; None: ``observation/images/NAME``.
            A camera that is left out is not sent.
        state_key: The policy's key of the state.

    Raises:
        UsageError: The robot is not connected, has no actions, or lacks a camera that is named.
    """

    def __init__(
        self,
        robot: LeRobotDevice,
        *,
        task: str,
        units: Mapping[str, str] | str = "",
        cameras: Mapping[str, str] | None = None,
        state_key: str = _STATE,
    ) -> None:
        if not robot.is_connected:
            raise UsageError("connect() the robot before it is driven")
        self._robot = robot
        self._task = task
        self._units = units
        self._state_key = state_key
        self._action_names = tuple(map(str, robot.action_features))
        if not self._action_names:
            raise UsageError("the robot has no action_features")
        seen = robot.observation_features
        self._state_names = tuple(name for name, kind in seen.items() if kind is float)
        own = [name for name, kind in seen.items() if isinstance(kind, tuple)]
        self._cameras = _renamed(own, cameras)

    def describe(self) -> RobotDescription:
        """Names and units, in the order of the robot's features."""
        return RobotDescription(
            action=tuple(Axis(name, self._unit(name)) for name in self._action_names),
            state=tuple(Axis(name, self._unit(name)) for name in self._state_names),
        )

    def observe(self) -> Mapping[str, object]:
        """State, instruction, and the pictures of the robot's own cameras.

        Raises:
            UsageError: A value of the features is missing, or is no finite number.
        """
        seen = self._robot.get_observation()
        values: dict[str, object] = {"prompt": self._task}
        if self._state_names:
            values[self._state_key] = np.array(
                [_number(seen, name) for name in self._state_names], np.float32
            )
        for name, key in self._cameras.items():
            values[key] = np.array(_entry(seen, name))
        return values

    def pose(self, seen: Mapping[str, object]) -> Vector:
        """Where the robot is, in the order of its actions, for ``Hooks(pose=robot.pose)``.

        Raises:
            UsageError: Its state does not have what its actions name.
        """
        state = cast("NDArray[np.float32]", seen[self._state_key])
        by_name = dict(zip(self._state_names, state, strict=True))
        missing = next((name for name in self._action_names if name not in by_name), None)
        if missing is not None:
            raise UsageError(f"pose: the robot's state has no {missing!r}")
        return np.array([by_name[name] for name in self._action_names], np.float32)

    def act(self, action: Vector, /) -> object:
        """Send a command.

        Raises:
            UsageError: It has another number of components than the robot.
        """
        if action.shape != (len(self._action_names),):
            raise UsageError(
                f"action: expected {len(self._action_names)} components"
                f" ({', '.join(self._action_names)}), got shape {action.shape}"
            )
        numbers: list[float] = action.tolist()
        return self._robot.send_action(dict(zip(self._action_names, numbers, strict=True)))

    def _unit(self, name: str) -> str:
        return self._units if isinstance(self._units, str) else self._units.get(name, "")


def lerobot_units(names: Iterable[str], *, use_degrees: bool) -> dict[str, str]:
    """Units by LeRobot's convention: grippers 0..100, other motors degrees or -100..100.

    Args:
        names: Of states and actions, such as ``gripper.pos``.
        use_degrees: As the robot is configured.
    """
    usual = "deg" if use_degrees else "-100..100"
    return {name: "0..100" if name.startswith(_GRIPPER) else usual for name in names}


def camera_reader(
    cameras: Mapping[str, LeRobotCamera], *, keys: Mapping[str, str] | None = None
) -> Callable[[], Mapping[str, object]]:
    """What :class:`~takt.client.cameras.Cameras` calls to read LeRobot's cameras.

    Args:
        cameras: Connected cameras by name.
        keys: The policy's key for each; None: ``observation/images/NAME``.

    Raises:
        UsageError: ``keys`` name a camera that is not there.
    """
    named = _renamed(list(cameras), keys)
    return lambda: {key: np.array(cameras[name].async_read()) for name, key in named.items()}


def _renamed(own: list[str], keys: Mapping[str, str] | None) -> dict[str, str]:
    if keys is None:
        return {name: f"observation/images/{name}" for name in own}
    unknown = next((name for name in keys if name not in own), None)
    if unknown is not None:
        known = ", ".join(own) or "none"
        raise UsageError(f"cameras: there is no camera {unknown!r}; there are: {known}")
    return dict(keys)


def _entry(seen: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - whatever a driver gives
    if name not in seen:
        raise UsageError(f"{name}: get_observation() returned no such key")
    return seen[name]


def _number(seen: Mapping[str, Any], name: str) -> float:
    value = _entry(seen, name)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name}: expected a number, got {type(value).__name__}") from None
    if not np.isfinite(number):
        raise UsageError(f"{name}: expected a finite number, got {number}")
    return number
