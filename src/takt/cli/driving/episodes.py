"""What simulated robots see: recorded camera images and states, in the shape a model takes.

A server that describes its model gets observations that fit the description; images of another
size are stretched. A server that describes nothing gets what openpi's LIBERO example sends. The
`echo` policy and stand-ins of a paced device get states that no two observations share, so that a
chunk shows whose it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from takt.client.answer import ActionArray
from takt.policies.mini.replay import CAMERA, Recording, load_recordings
from takt.policies.stand_in import PACED
from takt.schema.spec import CameraSpec, ObservationSpec, PolicySpec

__all__ = ["LIBERO", "Episode", "Observing", "episodes_of"]

LIBERO = ObservationSpec(
    cameras=(
        CameraSpec(name="image", height=224, width=224),
        CameraSpec(name="wrist_image", height=224, width=224),
    ),
    state_dim=8,
    prompt=True,
)
"""What is sent to a server that does not say what it takes."""

_ECHO_STATE_DIM = 6
_EXACT = 1 << 24
"""Whole numbers below it are exact in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observing:
    """What a model is sent, and whether its chunks can be checked."""

    spec: ObservationSpec
    is_echo: bool = False

    @classmethod
    def of(cls, spec: PolicySpec | None) -> Observing:
        """What fits a model; None: the server did not describe it."""
        if spec is None:
            return cls(spec=LIBERO)
        if spec.architecture.startswith(PACED):
            return cls(spec=spec.observation, is_echo=True)
        if spec.architecture != "echo":
            return cls(spec=spec.observation)
        camera = CameraSpec(name=CAMERA, height=112, width=112)
        cameras = spec.observation.cameras or (camera,)
        dim = _ECHO_STATE_DIM if spec.sizes_are_maxima else spec.observation.state_dim
        return cls(spec=ObservationSpec(cameras=cameras, state_dim=dim, prompt=True), is_echo=True)


class Episode:
    """One robot's recorded episode, which begins again when it is over.

    Args:
        recording: What was recorded.
        robot: Number of the robot, from 0; different for each.
        observing: What its model is sent.
    """

    def __init__(self, recording: Recording, robot: int, observing: Observing) -> None:
        self._recording = recording
        self._robot = robot
        self._observing = observing

    def observation(self, number: int) -> dict[str, Any]:
        """The robot's observation of that number, from 0."""
        spec = self._observing.spec
        step = number % len(self._recording)
        history = (spec.history,) if spec.history > 1 else ()
        values: dict[str, Any] = {}
        for camera in spec.cameras:
            image = _frames(self._recording, camera.height, camera.width)[step]
            values[f"observation/{camera.name}"] = np.broadcast_to(image, (*history, *image.shape))
        if spec.state_dim:
            state = self._state(number, step)
            values["observation/state"] = np.broadcast_to(state, (*history, *state.shape))
        values["prompt"] = self._recording.instruction
        return values

    def is_own(self, observation: Mapping[str, Any], actions: ActionArray) -> bool | None:
        """Whether a chunk answers this observation; None: this model does not show it."""
        if not self._observing.is_echo:
            return None
        state = np.asarray(observation["observation/state"], np.float32)
        steps = np.arange(len(actions), dtype=np.float32)[:, None]
        return bool(np.array_equal(actions, state + steps))

    def _state(self, number: int, step: int) -> NDArray[np.float32]:
        recorded = self._recording.states[step]
        if self._observing.is_echo:
            origin = np.array([self._robot + 1, number % _EXACT], np.float32)
            recorded = np.concatenate([origin, recorded])
        state = np.zeros(self._observing.spec.state_dim, np.float32)
        width = min(len(state), len(recorded))
        state[:width] = recorded[:width]
        return state


def episodes_of(observings: list[Observing]) -> list[Episode]:
    """An episode for each robot, in order; with more robots than recordings they share.

    Raises:
        ConfigError: The recordings in the package cannot be read.
    """
    recordings = load_recordings()
    episodes = [
        Episode(recordings[number % len(recordings)], number, observing)
        for number, observing in enumerate(observings)
    ]
    for episode in episodes:
        episode.observation(0)  # images are decoded now, not while time counts
    return episodes


@lru_cache(maxsize=256)
def _frames(recording: Recording, height: int, width: int) -> tuple[NDArray[np.uint8], ...]:
    """Every image of a recording in one size, each ``(height, width, 3)``."""
    images = [recording.observation(step).images[CAMERA] for step in range(len(recording))]
    return tuple(_resized(image, height, width) for image in images)


def _resized(image: NDArray[Any], height: int, width: int) -> NDArray[np.uint8]:
    if image.shape[:2] == (height, width):
        return image.astype(np.uint8, copy=False)
    return np.asarray(cv2.resize(image, (width, height)), np.uint8)
