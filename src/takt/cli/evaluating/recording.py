"""Writes what happened in episodes: every action as JSON lines, one solved episode as pictures.

Episodes come first: where the disk is full the lines end, or the pictures are left out, and the log
says so; the episodes go on.
"""

from __future__ import annotations

import json
import logging
from io import RawIOBase
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from takt.client.rollout import EpisodeResult, Moment
from takt.errors import ConfigError
from takt.files import replacing

__all__ = ["PICTURES", "Recorder", "check_strip"]

log = logging.getLogger(__name__)

PICTURES = 8
"""Pictures in a strip."""
_ENLARGED = 2
_GAP = 4
_DIGITS = 4


def check_strip(called: str, path: Path | None) -> None:
    """Refuse a file for pictures by whose name nobody knows how to write them.

    Raises:
        ConfigError: Its suffix; the message begins with ``called``.
    """
    if path is not None and not cv2.haveImageWriter(str(path)):
        raise ConfigError(f"{called} {path}: expected a name that ends in .jpg or .png")


class Recorder:
    """Records while episodes run; a context manager.

    Args:
        trace: File for the lines; None: none.
        strip: File for the pictures of the first solved episode; None: none.

    Raises:
        ConfigError: A file cannot be opened, or nobody writes pictures of its name.
    """

    def __init__(self, *, trace: Path | None, strip: Path | None) -> None:
        self._strip = strip
        self._pictures: list[NDArray[Any]] = []
        check_strip("strip", strip)
        self._lines = None if trace is None else _Lines(trace)

    def look(self, moment: Moment) -> None:
        """An action is about to be executed."""
        image = moment.observation.get("observation/image")
        if self._strip is not None and isinstance(image, np.ndarray):
            picture = cast("NDArray[Any]", image)
            if not self._pictures or self._pictures[-1] is not picture:
                self._pictures.append(picture)
        if self._lines is not None:
            self._lines.write(
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
            self._lines.write({"episode": result.index, "solved": result.is_solved})
        if self._strip is not None and result.is_solved:
            _write_strip(self._strip, self._pictures)
            self._strip = None
        self._pictures.clear()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lines is not None:
            self._lines.close()


class _Lines:
    """Lines of JSON in a file, until it cannot be written any more."""

    def __init__(self, path: Path) -> None:
        try:
            # Unbuffered: what a full disk refused must not come up again when the file is closed.
            self._file: RawIOBase = path.open("wb", buffering=0)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        self._name = path.name
        self._has_ended = False

    def write(self, line: dict[str, Any]) -> None:
        if self._has_ended:
            return
        rest = memoryview(f"{json.dumps(line)}\n".encode())
        try:
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError as error:
            self._has_ended = True
            log.error("trace is incomplete: file=%s reason=%s", self._name, error.strerror)

    def close(self) -> None:
        self._file.close()


def _rounded(values: object) -> list[float] | None:
    if values is None:
        return None
    return np.asarray(values, np.float64).round(_DIGITS).tolist()


def _write_strip(path: Path, pictures: list[NDArray[Any]]) -> None:
    if not pictures:
        log.error("the strip was not written: file=%s reason=nothing was seen", path.name)
        return
    places = np.linspace(0, len(pictures) - 1, min(PICTURES, len(pictures)))
    parts: list[NDArray[Any]] = []
    for place in places.round().tolist():
        picture = pictures[int(place)]
        side = len(picture) * _ENLARGED
        large = cv2.resize(picture, (side, side), interpolation=cv2.INTER_NEAREST)
        parts += [large, np.full((large.shape[0], _GAP, 3), 255, np.uint8)]
    strip = cv2.cvtColor(np.concatenate(parts[:-1], axis=1), cv2.COLOR_RGB2BGR)
    _, encoded = cv2.imencode(path.suffix, strip)
    try:
        with replacing(path) as fresh:
            fresh.write_bytes(encoded.tobytes())
    except OSError as error:
        log.error("the strip was not written: file=%s reason=%s", path.name, error.strerror)
