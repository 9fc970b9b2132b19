"""Says whether an observation fits a policy, before anything is computed or copied.

Robots may ask it too, before they send. Every refusal names the client's own key, what the policy
takes and what came.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from takt.errors import ObservationError
from takt.schema.observation import PROMPT_KEY, STATE_KEY, Array, Observation, image_key
from takt.schema.spec import CameraSpec, ObservationSpec

__all__ = [
    "MAX_IMAGE_SIDE",
    "MAX_NAMES",
    "MAX_PROMPT_LETTERS",
    "RGB",
    "check_image",
    "check_observation",
    "check_state",
]

MAX_PROMPT_LETTERS = 4096
MAX_IMAGE_SIDE = 8192
MAX_NAMES = 8
RGB = 3


def check_observation(observation: Observation, spec: ObservationSpec) -> None:
    """Refuse an observation that ``spec`` does not allow.

    Raises:
        ObservationError: A camera, the state or the instruction is missing or wrong.
    """
    for camera in spec.cameras:
        key = observation.spelling(image_key(camera.name))
        image = observation.images.get(camera.name)
        if image is not None:
            _check_camera(key, image, camera, spec.history)
        elif camera.required:
            raise ObservationError(
                key, expected=_image_words(camera, spec.history), received=_given(observation)
            )
    if spec.state_dim:
        check_state(observation, spec)
    _check_prompt(observation, needed=spec.prompt)


def check_state(observation: Observation, spec: ObservationSpec) -> None:
    """Refuse a state that is missing, of another shape, not real or not finite.

    Raises:
        ObservationError: It is.
    """
    key = observation.spelling(STATE_KEY)
    shape = (spec.state_dim,) if spec.history == 1 else (spec.history, spec.state_dim)
    state = observation.state
    if state is None:
        raise ObservationError(key, expected=f"a state of shape {shape}", received="no such key")
    if state.dtype.kind not in "fiu":
        raise ObservationError(key, expected="real numbers", received=f"dtype {state.dtype}")
    if state.shape != shape:
        raise ObservationError(key, expected=f"shape {shape}", received=f"shape {state.shape}")
    with np.errstate(over="ignore"):  # a float64 too large becomes infinite and is refused
        finite = np.isfinite(state.astype(np.float32, copy=False))
    if not finite.all():
        at = int(np.flatnonzero(~finite.ravel())[0])
        raise ObservationError(
            f"{key}[{at}]", expected="a finite float32", received=str(state.ravel()[at])
        )


def check_image(key: str, image: Array, history: int = 1) -> None:
    """Refuse what is no RGB image: ``(height, width, 3)`` or ``(3, height, width)``.

    Raises:
        ObservationError: The dtype, the number of axes, of channels or of pixels is wrong.
    """
    expected = "uint8 or float in 0..1 of shape (height, width, 3)"
    if image.dtype != np.uint8 and image.dtype.kind != "f":
        raise ObservationError(key, expected=expected, received=f"dtype {image.dtype}")
    shape = image.shape if history == 1 else image.shape[1:]
    has_history = history == 1 or image.shape[:1] == (history,)
    if not has_history or len(shape) != len("HWC") or RGB not in {shape[0], shape[2]}:
        expected = expected if history == 1 else f"{history} images, {expected}"
        raise ObservationError(key, expected=expected, received=f"shape {image.shape}")
    if min(shape) < 1 or max(shape) > MAX_IMAGE_SIDE:
        raise ObservationError(
            key, expected=f"sides of 1..{MAX_IMAGE_SIDE} pixels", received=f"shape {image.shape}"
        )
    if image.dtype.kind == "f":
        _check_float_image(key, image)


def _check_float_image(key: str, image: Array) -> None:
    low, high = float(image.min()), float(image.max())
    # Written so that NaN, which compares false with everything, is refused.
    if not (low >= 0.0 and high <= 1.0):
        raise ObservationError(
            key, expected="a float image in 0..1", received=f"values {low:g}..{high:g}"
        )


def _check_camera(key: str, image: Array, camera: CameraSpec, history: int) -> None:
    check_image(key, image, history)
    shape = image.shape if history == 1 else image.shape[1:]
    height, width = shape[:2] if shape[2] == RGB else shape[1:]
    if camera.resize == "exact" and (height, width) != (camera.height, camera.width):
        raise ObservationError(
            key, expected=_image_words(camera, history), received=f"shape {image.shape}"
        )


def _check_prompt(observation: Observation, *, needed: bool) -> None:
    key = observation.spelling(PROMPT_KEY)
    prompt = cast("object", observation.prompt)  # a door may pass on what a client sent
    if prompt is None and not needed:
        return
    if not isinstance(prompt, str):
        received = "no such key" if prompt is None else type(prompt).__name__
        raise ObservationError(key, expected="an instruction as text", received=received)
    if needed and not prompt.strip():
        raise ObservationError(key, expected="an instruction", received="empty text")
    if len(prompt) > MAX_PROMPT_LETTERS:
        raise ObservationError(
            key, expected=f"at most {MAX_PROMPT_LETTERS} letters", received=f"{len(prompt)} letters"
        )


def _image_words(camera: CameraSpec, history: int) -> str:
    size = f"({camera.height}, {camera.width}, 3)" if camera.resize == "exact" else "any size"
    number = "an image" if history == 1 else f"{history} images"
    return f"{number} of camera {camera.name!r}, {size}"


def _given(observation: Observation) -> str:
    names = sorted(observation.images)
    if not names:
        return "no image"
    listed = ", ".join(repr(name) for name in names[:MAX_NAMES])
    more = " and more" if len(names) > MAX_NAMES else ""
    return f"no such key; images came of {listed}{more}"
