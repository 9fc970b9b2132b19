"""Writes what happened in episodes: every action as JSON lines, one solved episode as pictures."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from takt.client.rollout import EpisodeResult, Moment
from takt.errors import ConfigError

__all__ = ["PICTURES", "Recorder"]

PICTURES = 8
"""Pictures in a strip."""
_ENLARGED = 2
_GAP = 4
_DIGITS = 4


class Recorder:
    """Records while episodes run; a context manager.

    Args:
        trace: File for the lines; None: none.
        strip: File for the pictures of the first solved episode; None: none.

    Raises:
        ConfigError: A file cannot be written.
    """

    def __init__(self, *, trace: Path | None, strip: Path | None) -> None:
        self._strip = strip
        self._pictures: list[NDArray[Any]] = []
        self._lines: IO[str] | None = None
        if trace is not None:
            try:
                self._lines = trace.open("w", encoding="utf-8")
            except OSError as error:
                raise ConfigError(f"{trace}: {error.strerror}") from error

    def look(self, moment: Moment) -> None:
        """An action is about to be executed."""
        image = moment.observation.get("observation/image")
        if self._strip is not None and isinstance(image, np.ndarray):
            picture = cast("NDArray[Any]", image)
            if not self._pictures or self._pictures[-1] is not picture:
                self._pictures.append(picture)
        if self._lines is not None:
            self._write(
                {
                    "episode": moment.index,
                    "step": moment.step,
                    "told": moment.observation.get("prompt"),
                    "state_at_chunk": _rounded(moment.observation.get("observation/state")),
                    "action": _rounded(moment.action),
                }
            )

    def finished(self, result: EpisodeResult) -> None:
        """An episode is over."""
        if self._lines is not None:
            self._write({"episode": result.index, "solved": result.is_solved})
        if self._strip is not None and result.is_solved:
            _write_strip(self._strip, self._pictures)
            self._strip = None
        self._pictures.clear()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._lines is not None:
            self._lines.close()

    def _write(self, line: dict[str, Any]) -> None:
        assert self._lines is not None
        self._lines.write(json.dumps(line) + "\n")


def _rounded(values: object) -> list[float] | None:
    if values is None:
        return None
    return np.asarray(values, np.float64).round(_DIGITS).tolist()


def _write_strip(path: Path, pictures: list[NDArray[Any]]) -> None:
    places = np.linspace(0, len(pictures) - 1, min(PICTURES, len(pictures)))
    parts: list[NDArray[Any]] = []
    for place in places.round().tolist():
        picture = pictures[int(place)]
        side = len(picture) * _ENLARGED
        large = cv2.resize(picture, (side, side), interpolation=cv2.INTER_NEAREST)
        parts += [large, np.full((large.shape[0], _GAP, 3), 255, np.uint8)]
    strip = cv2.cvtColor(np.concatenate(parts[:-1], axis=1), cv2.COLOR_RGB2BGR)
    try:
        written = cv2.imwrite(str(path), strip)
    except cv2.error as error:
        raise ConfigError(f"{path}: expected a name that ends in .jpg or .png") from error
    if not written:
        raise ConfigError(f"{path}: cannot be written")
