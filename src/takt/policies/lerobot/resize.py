"""Camera images to the exact floats a policy was trained on.

Bilinear with half-pixel centres and without antialiasing, computed in float32 on values in [0, 1]:
an image scaled as ``uint8`` has other values. OpenCV's resize of float images differs by up to
7e-5 where the scale is not a whole ratio, which is too much beside a tolerance of 2e-4 on
every tensor that follows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from takt.policies.interface import FloatArray
from takt.schema.spec import CameraSpec

__all__ = ["fitted_size", "write_scaled"]

_RGB = 3
_WHITE = np.float32(255)


def fitted_size(height: int, width: int, camera: CameraSpec) -> tuple[int, int]:
    """Height and width of an image scaled to fit into ``camera``, without its padding."""
    if (height, width) == (camera.height, camera.width):
        return height, width
    # In double and cut off, as LeRobot does it: 480x848 at 98 gives 55x97.
    ratio = max(width / camera.width, height / camera.height)
    return max(1, int(height / ratio)), max(1, int(width / ratio))


def write_scaled(image: NDArray[Any], camera: CameraSpec, out: FloatArray) -> None:
    """Write ``image`` as the network sees it.

    Args:
        image: An image that :func:`takt.schema.check.check_image` accepts.
        camera: Size and resize rule: ``exact``, ``pad_center`` or ``pad_left_top``.
        out: ``(camera.height, camera.width, 3)``, overwritten with values in [-1, 1].
    """
    pixels = image if image.shape[2] == _RGB else image.transpose(1, 2, 0)
    height, width = fitted_size(pixels.shape[0], pixels.shape[1], camera)
    share = 2 if camera.resize == "pad_center" else 1
    top, left = (camera.height - height) // share, (camera.width - width) // share
    scaled = _unit(pixels) if pixels.shape[:2] == (height, width) else _scale(pixels, height, width)
    if (height, width) != (camera.height, camera.width):
        out[...] = -1
    inner = out[top : top + height, left : left + width]
    np.multiply(scaled, np.float32(2), out=inner)
    np.subtract(inner, np.float32(1), out=inner)


def _unit(pixels: NDArray[Any]) -> FloatArray:
    if pixels.dtype == np.uint8:
        return np.divide(pixels, _WHITE, dtype=np.float32)
    return pixels.astype(np.float32)


def _scale(pixels: NDArray[Any], height: int, width: int) -> FloatArray:
    above, below, down = _plan(pixels.shape[0], height)
    left, right, across = _plan(pixels.shape[1], width)
    down, across = down[:, None, None], across[:, None]
    rows = _unit(pixels[above]) * (1 - down)
    rows += _unit(pixels[below]) * down
    scaled = rows[:, left] * (1 - across)
    scaled += rows[:, right] * across
    return scaled.astype(np.float32, copy=False)


@lru_cache(maxsize=64)
def _plan(length: int, new: int) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray]:
    """For each new place the old ones on both sides, and the share of the second."""
    scale = np.float32(length) / np.float32(new)
    centres = scale * (np.arange(new, dtype=np.float32) + np.float32(0.5)) - np.float32(0.5)
    centres = np.maximum(centres, np.float32(0))
    first = centres.astype(np.intp)
    second = np.minimum(first + 1, length - 1)
    return first, second, (centres - first).astype(np.float32)
