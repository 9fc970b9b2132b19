"""Recorded camera images and states to send when no robot is at hand.

The package ships a few episodes of simulated manipulation (``recordings/README.md`` says whence).
They are the inputs the `mini` policy is made for, and they make any other demonstration move.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from takt.errors import ConfigError, UsageError
from takt.schema.observation import Observation

__all__ = ["ARRAYS", "CAMERA", "SHIPPED_RECORDINGS", "Recording", "load_recordings"]

SHIPPED_RECORDINGS = Path(__file__).parent / "recordings" / "replay.npz"
"""The file in the package."""

CAMERA = "image"
"""Name of the one camera."""

ARRAYS = ("jpeg", "jpeg_offset", "state", "episode_start", "task", "instruction")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recording:
    """One recorded episode."""

    task: str
    """Name of the task."""
    instruction: str
    """What the robot was told."""
    states: NDArray[np.float32]
    """Shape ``(steps, 4)``: gripper position x, y, z in metres and its opening, 0..1."""
    frames: tuple[bytes, ...]
    """One JPEG per step."""

    def __len__(self) -> int:
        return len(self.frames)

    def observation(self, step: int) -> Observation:
        """The observation of a step, its image decoded to ``(height, width, 3)`` RGB.

        Args:
            step: Any whole number from 0; past the end the recording starts again.
        """
        if step < 0:
            raise UsageError(f"step must be at least 0, got {step}")
        index = step % len(self)
        frame = cv2.imdecode(np.frombuffer(self.frames[index], np.uint8), cv2.IMREAD_COLOR)
        if frame is None:
            raise ConfigError(f"recording of {self.task}: step {index} is no JPEG image")
        image = cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
        return Observation(
            images={CAMERA: image}, state=self.states[index], prompt=self.instruction
        )


def load_recordings(path: Path = SHIPPED_RECORDINGS) -> tuple[Recording, ...]:
    """Read recorded episodes; images stay compressed until they are asked for.

    Raises:
        ConfigError: The file is missing or no recording.
    """
    if path is SHIPPED_RECORDINGS and not path.exists():
        raise ConfigError("no recordings of mini are installed; install: pip install takt-mini")
    try:
        # np.load would not close a file that it can't read.
        with path.open("rb") as data, np.load(data, allow_pickle=False) as file:
            arrays: dict[str, NDArray[Any]] = {name: file[name] for name in ARRAYS}
    except (OSError, KeyError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path}: not a recording: {error}") from error
    ends = [*arrays["episode_start"][1:].tolist(), len(arrays["state"])]
    return tuple(
        _recording(arrays, number, start, stop)
        for number, (start, stop) in enumerate(
            zip(arrays["episode_start"].tolist(), ends, strict=True)
        )
    )


def _recording(arrays: Mapping[str, NDArray[Any]], number: int, start: int, stop: int) -> Recording:
    jpeg, offset = arrays["jpeg"], arrays["jpeg_offset"]
    return Recording(
        task=str(arrays["task"][number]),
        instruction=str(arrays["instruction"][number]),
        states=arrays["state"][start:stop],
        frames=tuple(jpeg[offset[i] : offset[i + 1]].tobytes() for i in range(start, stop)),
    )
