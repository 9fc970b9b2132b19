"""LeRobot's keys to Takt's words: what a robot says it sends, and what it sends.

A handshake lists features (``observation.state``, ``observation.images.<camera>``); observations
then come under the robot's own keys::

    shoulder_pan.pos: 12.5, ..., gripper.pos: 3.0     the state, one number per joint
    front: (480, 640, 3)                              an image, by the camera's name
    observation.images.front: (480, 640, 3)           the same, as some clients spell it
    task: "fold the towel"                            the instruction

The state is put together in the order of the handshake's names, never in the order of the keys.

Start reading at :func:`read_observation`.
"""

from __future__ import annotations

import numpy as np

from takt.errors import ObservationError, WireError
from takt.schema.observation import PROMPT_KEY, Array, Observation, image_key
from takt.schema.observation import STATE_KEY as SPELLED_STATE
from takt.schema.spec import PolicySpec
from takt.session.features import (
    IMAGE_PREFIX,
    STATE_KEY,
    TASK_KEY,
    ImageFeature,
    RobotFeatures,
)
from takt.wire.lerobot import LerobotObservation, LerobotSetup, LerobotValue
from takt.wire.lerobot_features import LerobotFeature

__all__ = ["features_of", "features_seen", "read_observation"]

_STATE_KEYS = (STATE_KEY, "state")
"""Keys under which some clients send the state as one array."""
_IMAGE_AXES = 3
_MAX_JOINTS = 4096


def features_of(setup: LerobotSetup) -> RobotFeatures:
    """What a handshake says its robot sends.

    Raises:
        WireError: A shape or a list of names is impossible.
    """
    state = setup.features.get(STATE_KEY)
    names = () if state is None or state.names is None else state.names
    state_dim = 0 if state is None else state.shape[0] if state.shape else 1
    if state is not None and (len(state.shape) > 1 or state_dim > _MAX_JOINTS):
        raise WireError(f"{STATE_KEY}: expected one axis of joints, got shape {state.shape}")
    if names and (len(names) != state_dim or len(set(names)) != len(names)):
        raise WireError(f"{STATE_KEY}: expected {state_dim} different names, got {len(names)}")
    return RobotFeatures(
        state_dim=state_dim,
        state_names=names,
        images=tuple(
            _image(key, feature) for key, feature in setup.features.items() if feature.is_image
        ),
        rename=tuple(sorted((a, b) for a, b in setup.rename_map.items() if a != b)),
    )


def features_seen(observation: LerobotObservation, spec: PolicySpec) -> RobotFeatures | None:
    """What a robot without a handshake sends, told from one observation; None if it does not fit.

    Only names can tell which joint is which, so where the policy has none the joints are taken in
    the order in which the robot sends them, which is that of its handshake.
    """
    values = observation.values
    numbers = tuple(key for key, value in values.items() if isinstance(value, float))
    axes = tuple(axis.name for axis in spec.observation.state)
    names = axes if axes and set(axes) == set(numbers) else numbers
    whole = next((values[key] for key in _STATE_KEYS if key in values), None)
    if isinstance(whole, np.ndarray):
        names, state_dim = (), whole.size
    else:
        state_dim = len(names)
    images = tuple(
        ImageFeature(
            name=key.removeprefix(IMAGE_PREFIX),
            height=value.shape[0],
            width=value.shape[1],
            channels=value.shape[2],
        )
        for key, value in values.items()
        if isinstance(value, np.ndarray) and value.ndim == _IMAGE_AXES
    )
    if not state_dim and not images:
        return None
    return RobotFeatures(state_dim=state_dim, state_names=names, images=images)


def read_observation(received: LerobotObservation, features: RobotFeatures) -> Observation:
    """The observation that a client's values describe.

    Args:
        received: What came.
        features: What its session's handshake announced.

    Raises:
        ObservationError: A joint or a camera is missing, or a value is of the wrong kind.
    """
    rest = dict(received.values)
    spelled = {SPELLED_STATE: STATE_KEY, PROMPT_KEY: TASK_KEY}
    state = _take_state(rest, features)
    task = rest.pop(TASK_KEY, None)
    if task is not None and not isinstance(task, str):
        raise ObservationError(TASK_KEY, expected="text", received="another value")
    return Observation(
        state=state,
        images=_take_images(rest, features, spelled),
        prompt=task,
        extra=rest,
        spelled=spelled,
    )


def _image(key: str, feature: LerobotFeature) -> ImageFeature:
    if len(feature.shape) != _IMAGE_AXES:
        raise WireError(f"{key}: expected a shape of 3 numbers, got {feature.shape}")
    height, width, channels = feature.shape
    if feature.has_channels_first:
        channels, height, width = feature.shape
    name = key.removeprefix(IMAGE_PREFIX)
    return ImageFeature(name=name, height=height, width=width, channels=channels)


def _take_state(rest: dict[str, LerobotValue], features: RobotFeatures) -> Array | None:
    whole = next((key for key in _STATE_KEYS if key in rest), None)
    if whole is not None:
        return _whole_state(whole, rest.pop(whole), features)
    if not features.state_dim:
        return None
    if not features.state_names:
        raise ObservationError(
            STATE_KEY,
            expected="an array, as the handshake gave the joints no names",
            received="no such key",
        )
    state = np.empty(features.state_dim, np.float64)
    for place, name in enumerate(features.state_names):
        state[place] = _number(name, rest.pop(name, None))
    return state


def _whole_state(key: str, value: LerobotValue, features: RobotFeatures) -> Array:
    if not isinstance(value, np.ndarray) or value.size != features.state_dim:
        received = f"shape {value.shape}" if isinstance(value, np.ndarray) else "no array"
        raise ObservationError(
            key, expected=f"an array of {features.state_dim} values", received=received
        )
    return value.reshape(-1)


def _number(name: str, value: LerobotValue | None) -> float:
    if isinstance(value, float):
        return value
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "fiub":
        return float(value.reshape(-1)[0])
    received = "no such key" if value is None else "another value"
    raise ObservationError(name, expected="a number", received=received)


def _take_images(
    rest: dict[str, LerobotValue], features: RobotFeatures, spelled: dict[str, str]
) -> dict[str, Array]:
    images: dict[str, Array] = {}
    for image in features.images:
        camera = features.camera_of(image.name)
        key = next((k for k in (image.name, IMAGE_PREFIX + image.name) if k in rest), None)
        spelled[image_key(camera)] = image.name if key is None else key
        if key is None:
            raise ObservationError(
                image.name,
                expected=f"an image of shape {_shape(image)}, as in the handshake",
                received="no such key",
            )
        images[camera] = _pixels(key, rest.pop(key), image)
    return images


def _pixels(key: str, value: LerobotValue, image: ImageFeature) -> Array:
    if not isinstance(value, np.ndarray):
        raise ObservationError(key, expected="an image as an array", received="another value")
    if value.shape not in {_shape(image), (image.channels, image.height, image.width)}:
        raise ObservationError(
            key,
            expected=f"shape {_shape(image)}, as in the handshake",
            received=f"shape {value.shape}",
        )
    return value


def _shape(image: ImageFeature) -> tuple[int, int, int]:
    return image.height, image.width, image.channels
