"""The resize that LeRobot's own server does before a policy's preprocessing, to the last bit.

That server stretches each camera's ``uint8`` image to the size in the checkpoint's
``input_features``, whatever its shape, and the policy's own resize follows. A policy sees other
images than in training and than anywhere else; the switch ``stock_resize`` does the same here, to
compare with such a server. It is off otherwise.

The pixels are those of torch's bilinear interpolation of ``uint8`` without antialiasing: across,
then down, each time with weights of 16 bits and rounded.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["squash"]

_MOST_PRECISION = 22
_WEIGHT_LIMIT = 1 << 15


def squash(image: NDArray[Any], height: int, width: int) -> NDArray[np.uint8]:
    """An image as LeRobot's server hands it to the policy.

    Args:
        image: ``(h, w, 3)`` ``uint8``, or float in [0, 1], which is rounded first.
        height: Of the camera in ``input_features``.
        width: Likewise.

    Returns:
        Shape ``(height, width, 3)``.

    Source:
        ``resize_robot_observation_image`` of LeRobot 0.4.4, run with torch 2.13.
    """
    pixels = image
    if pixels.dtype != np.uint8:
        pixels = np.rint(pixels * 255.0).astype(np.uint8)
    return _scaled(_scaled(pixels, width, axis=1), height, axis=0)


def _scaled(image: NDArray[np.uint8], new: int, *, axis: int) -> NDArray[np.uint8]:
    if image.shape[axis] == new:
        return image
    first, second, weights, precision = _plan(image.shape[axis], new)
    shape = [1] * image.ndim
    shape[axis] = new
    mixed = np.take(image, first, axis).astype(np.int32) * weights[0].reshape(shape)
    mixed += np.take(image, second, axis).astype(np.int32) * weights[1].reshape(shape)
    mixed += 1 << (precision - 1)
    return (mixed >> precision).astype(np.uint8)


@lru_cache(maxsize=64)
def _plan(
    length: int, new: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int32], int]:
    """For each new place the old ones on both sides, their weights, and the bits of these."""
    centres = np.maximum(length / new * (np.arange(new) + 0.5) - 0.5, 0.0)
    first = np.minimum(centres.astype(np.intp), length - 1)
    second = np.minimum(first + 1, length - 1)
    share = centres - first
    weights = np.stack([1.0 - share, share])
    largest, precision = float(weights.max()), 0
    while precision < _MOST_PRECISION and int(0.5 + largest * 2 ** (precision + 1)) < _WEIGHT_LIMIT:
        precision += 1
    return first, second, np.floor(weights * 2**precision + 0.5).astype(np.int32), precision
