"""openpi's observation keys to Takt's words, for any policy.

Clients of this protocol spell their observations in many ways; the same robot data means the same
in each of them::

    observation/image, observation/wrist_image, observation/state     LIBERO
    observation/exterior_image_1_left, observation/joint_position,
        observation/gripper_position                                  DROID
    images: {cam_high: (3, height, width), ...}, state                ALOHA
    observation.images.top, observation.state                         LeRobot
    observation: {state: ..., images: {...}}                          nested

A camera is bound by name, never by position (:mod:`takt.wire.camera_keys`). What is there and of
the right kind is passed on; whether it fits the policy is for the policy to say, in the client's
own spelling. Images that came as files are passed on as such: nothing is decoded here.

Start reading at :func:`read_observation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from takt.errors import ObservationError
from takt.schema.encoded_image import EncodedImage
from takt.schema.observation import PROMPT_KEY, STATE_KEY, Array, Observation, image_key
from takt.schema.spec import ObservationSpec
from takt.wire.camera_keys import camera_named, last_part, with_slashes

__all__ = ["read_observation"]

_STATE_KEYS = ("observation/state", "state", "proprio")
_STATE_PARTS = ("observation/joint_position", "observation/gripper_position")
_PROMPT_KEYS = ("prompt", "task", "observation/prompt", "language_instruction")
_IMAGE_WORDS = ("image", "camera", "cam_", "rgb")
_MAP_AXES = 2
"""An array with this many axes or more is taken for an image."""


@dataclass(frozen=True, slots=True)
class _Value:
    spelled: str
    """The client's own key, parts of nested maps joined by a slash."""
    value: object


def read_observation(values: Mapping[str, object], spec: ObservationSpec) -> Observation:
    """The observation that a client's values describe.

    Args:
        values: A decoded request without Takt's options.
        spec: What the policy takes; decides which keys are its cameras.

    Raises:
        ObservationError: A state, an image or an instruction is of the wrong kind.
    """
    rest = _by_key(values)
    spelled: dict[str, str] = {}
    state = _take_state(rest, spelled)
    prompt = _take_prompt(rest, spelled)
    images = _take_images(rest, spec, spelled)
    return Observation(
        state=state,
        images={name: image for name, image in images.items() if isinstance(image, np.ndarray)},
        encoded={name: image for name, image in images.items() if isinstance(image, EncodedImage)},
        prompt=prompt,
        extra={entry.spelled: entry.value for entry in rest.values()},
        spelled=spelled,
    )


def _by_key(values: Mapping[str, object]) -> dict[str, _Value]:
    """The client's values by one spelling of their keys."""
    found: dict[str, _Value] = {}
    for entry in _flat(values, ""):
        first = found.setdefault(with_slashes(entry.spelled), entry)
        if first is not entry:
            raise ObservationError(
                entry.spelled,
                expected="every key once; dots, slashes and nested maps mean the same",
                received=f"the same as {first.spelled}",
            )
    return found


def _flat(values: Mapping[str, object], before: str) -> Iterator[_Value]:
    # Recursion is safe here: the decoder has bounded the depth.
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(cast("Mapping[str, object]", value), f"{before}{key}/")
        else:
            yield _Value(before + key, value)


def _take_state(rest: dict[str, _Value], spelled: dict[str, str]) -> Array | None:
    for key in _STATE_KEYS:
        entry = rest.pop(key, None)
        if entry is not None:
            spelled[STATE_KEY] = entry.spelled
            return _numbers(entry)
    parts = [rest.pop(key) for key in _STATE_PARTS if key in rest]
    if not parts:
        spelled[STATE_KEY] = _STATE_KEYS[0]
        return None
    spelled[STATE_KEY] = " + ".join(part.spelled for part in parts)
    return np.concatenate([_numbers(part).ravel() for part in parts])


def _numbers(entry: _Value) -> Array:
    """An array, or the array that a number or a list of numbers stands for."""
    value = entry.value
    if isinstance(value, np.ndarray):
        return cast("Array", value)
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, int | float | np.number) for item in items):
        raise ObservationError(
            entry.spelled, expected="an array of numbers", received=_kind_of(value)
        )
    return np.asarray(items, np.float64)


def _take_prompt(rest: dict[str, _Value], spelled: dict[str, str]) -> str | None:
    for key in _PROMPT_KEYS:
        entry = rest.pop(key, None)
        if entry is not None:
            spelled[PROMPT_KEY] = entry.spelled
            return _text(entry)
    return None


def _text(entry: _Value) -> str | None:
    value = entry.value
    if isinstance(value, np.ndarray):
        array = cast("Array", value)
        if array.size == 1 and array.dtype.kind == "U":
            return str(cast("object", array.item()))
    elif isinstance(value, str) or value is None:
        return value
    raise ObservationError(entry.spelled, expected="text", received=_kind_of(entry.value))


def _take_images(
    rest: dict[str, _Value], spec: ObservationSpec, spelled: dict[str, str]
) -> dict[str, Array | EncodedImage]:
    cameras = {camera.name for camera in spec.cameras}
    keys = [key for key, entry in rest.items() if _is_image(key, entry.value, cameras)]
    images: dict[str, Array | EncodedImage] = {}
    for key in keys:
        entry = rest.pop(key)
        camera = camera_named(key, cameras)
        if camera in images:
            raise ObservationError(
                entry.spelled,
                expected="one image of each camera",
                received=f"a second one of {camera!r}",
            )
        spelled[image_key(camera)] = entry.spelled
        images[camera] = _pixels(entry)
    for camera in cameras - images.keys():
        spelled[image_key(camera)] = _spell_camera(camera, keys)
    return images


def _is_image(key: str, value: object, cameras: set[str]) -> bool:
    last = last_part(key)
    if "images/" in key or camera_named(key, cameras) in cameras:
        return True
    if isinstance(value, EncodedImage):
        return True
    if isinstance(value, np.ndarray) and cast("Array", value).ndim >= _MAP_AXES:
        return True
    return any(word in last for word in _IMAGE_WORDS)


def _pixels(entry: _Value) -> Array | EncodedImage:
    value = entry.value
    if isinstance(value, EncodedImage):
        return value
    if not isinstance(value, np.ndarray):
        raise ObservationError(
            entry.spelled, expected="an image as an array", received=_kind_of(value)
        )
    return cast("Array", value)


def _spell_camera(camera: str, keys: list[str]) -> str:
    """A missing camera's key as this client would spell it."""
    if any(key.startswith("images/") for key in keys):
        return f"images/{camera}"
    if any(key.startswith("observation/images/") for key in keys):
        return f"observation/images/{camera}"
    return f"observation/{camera}"


def _kind_of(value: Any) -> str:  # noqa: ANN401 - whatever a client sent
    if isinstance(value, np.ndarray):
        array = cast("Array", value)
        return f"an array of {array.dtype} and shape {array.shape}"
    if isinstance(value, list):
        return "a list that is empty or holds something else"
    if isinstance(value, EncodedImage):
        return f"a {value.encoding} image"
    return "nothing" if value is None else type(value).__name__
