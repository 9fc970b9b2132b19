"""A robot's features and observations in LeRobot's words.

A LeRobot server is told once which joints and cameras a robot has, in order, and gets each
observation by the robot's own keys::

    shoulder_pan.pos: 12.5, ..., gripper.pos: 3.0     one number per joint
    front: (480, 640, 3)                              one image per camera
    task: "fold the towel"

Robots that were written for openpi's or Takt's keys are understood as well: a whole state is taken
apart by the names of the joints, ``observation/front`` is the image of ``front``, and ``prompt`` is
the task. What was not declared is not sent.

Start reading at :func:`values_of`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from takt.errors import UsageError
from takt.wire.lerobot_features import LerobotFeature
from takt.wire.lerobot_objects import LerobotValue

__all__ = ["HardwareFeatures", "features_of", "values_of"]

HardwareFeatures: TypeAlias = "Mapping[str, type[float] | tuple[int, ...]]"
"""What a LeRobot ``Robot`` has as ``observation_features``: ``float`` for a joint,
``(height, width, channels)`` for a camera, in the order of the policy's state."""

_STATE = "observation.state"
_IMAGES = "observation.images."
_STATE_KEYS = (_STATE, "observation/state", "state")
_IMAGE_PREFIXES = ("", _IMAGES, "observation/images/", "observation/", "images.")
_TASK_KEYS = ("task", "prompt")
_CHANNELS = frozenset({1, 3})
_IMAGE_RANK = 3


def features_of(hardware: HardwareFeatures) -> dict[str, LerobotFeature]:
    """The features of a handshake, as LeRobot's own client derives them from its robot.

    Raises:
        UsageError: A value is neither ``float`` nor the shape of an image, or there are none.
    """
    joints: list[str] = []
    cameras: dict[str, LerobotFeature] = {}
    for key, kind in hardware.items():
        if kind is float:
            joints.append(key)
        else:
            cameras[_IMAGES + key] = _camera(key, kind)
    if not joints and not cameras:
        raise UsageError("features: expected joints and cameras by name, got none")
    state = LerobotFeature(dtype="float32", shape=(len(joints),), names=tuple(joints))
    return {**({_STATE: state} if joints else {}), **cameras}


def values_of(
    observation: Mapping[str, object], features: Mapping[str, LerobotFeature]
) -> dict[str, LerobotValue]:
    """What is sent of an observation.

    Args:
        observation: By LeRobot's keys, openpi's or Takt's; see the module's docstring.
        features: From :func:`features_of`.

    Raises:
        UsageError: A joint or a camera is missing, or is not what was declared.
    """
    values: dict[str, LerobotValue] = {}
    for key, feature in features.items():
        if feature.is_image:
            camera = key.removeprefix(_IMAGES)
            values[camera] = _image(camera, observation, feature)
        else:
            values.update(_joints(feature.names or (), observation))
    values["task"] = _task(observation)
    return values


def _camera(key: str, shape: object) -> LerobotFeature:
    sizes = cast("tuple[Any, ...]", shape if isinstance(shape, tuple) else ())
    is_image = len(sizes) == _IMAGE_RANK and all(
        isinstance(size, int) and size > 0 for size in sizes
    )
    if not is_image or sizes[-1] not in _CHANNELS:
        raise UsageError(
            f"features.{key}: expected float, or (height, width, channels) with 1 or 3 channels,"
            f" got {shape!r}"
        )
    return LerobotFeature(
        dtype="image",
        shape=sizes,
        names=("height", "width", "channels"),
        is_depth=sizes[-1] == 1,
    )


def _joints(
    names: tuple[str, ...], observation: Mapping[str, object]
) -> Iterator[tuple[str, float]]:
    whole = next((key for key in _STATE_KEYS if key in observation), None)
    if whole is None:
        return ((name, _number(name, observation.get(name))) for name in names)
    state = np.asarray(observation[whole])
    if state.shape != (len(names),) or state.dtype.kind not in "fiub":
        raise UsageError(
            f"{whole}: expected {len(names)} numbers, got {state.dtype} of shape {state.shape}"
        )
    return zip(names, map(float, state), strict=True)


def _number(name: str, value: object) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    found = np.asarray(value)
    if found.size != 1 or found.dtype.kind not in "fiub":
        received = "no such key" if value is None else type(value).__name__
        raise UsageError(f"{name}: expected a number, got {received}")
    return float(found.reshape(()))


def _image(
    camera: str, observation: Mapping[str, object], feature: LerobotFeature
) -> NDArray[np.uint8]:
    spelled = (prefix + camera for prefix in _IMAGE_PREFIXES)
    key = next((key for key in spelled if key in observation), None)
    value = None if key is None else observation[key]
    if not isinstance(value, np.ndarray):
        received = "no such key" if value is None else type(value).__name__
        raise UsageError(f"{camera}: expected an image of shape {feature.shape}, got {received}")
    image = cast("NDArray[Any]", value)
    wanted = np.dtype(np.uint16 if feature.is_depth else np.uint8)
    if image.shape != feature.shape or image.dtype != wanted:
        raise UsageError(
            f"{key}: expected {wanted} of shape {feature.shape}, as in the handshake,"
            f" got {image.dtype} of shape {image.shape}"
        )
    return image


def _task(observation: Mapping[str, object]) -> str:
    key = next((key for key in _TASK_KEYS if key in observation), "task")
    task = observation.get(key, "")
    if not isinstance(task, str):
        raise UsageError(f"{key}: expected text, got {type(task).__name__}")
    return task
