"""Camera images to the size a policy sees, by one routine for server and robot.

A robot that resizes with :func:`write_image` before it sends spares the network the rest and
changes no bit of what the policy sees, as long as its OpenCV computes as the server's does. The
server therefore sends its :func:`resize_check`, and a robot whose own differs leaves images as
they are.

The only module of this package that imports OpenCV; a robot without it never imports this one.
Policies that mix pixels in another way (``CameraSpec.robot_may_resize`` is false) have a routine
of their own.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from takt.schema.check import RGB
from takt.schema.spec import CameraSpec

__all__ = ["INTERPOLATION", "as_rgb8", "resize_check", "resized", "write_image"]

INTERPOLATION = {"linear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA}

_CHECKED = (
    ((37, 53), (20, 31)),
    ((64, 48), (32, 24)),
    ((19, 23), (40, 57)),
    ((90, 160), (28, 50)),
)
"""Sizes before and after, of the pictures that :func:`resize_check` resizes."""


def as_rgb8(image: NDArray[Any]) -> NDArray[np.uint8]:
    """An image as ``(height, width, 3)`` of ``uint8``, contiguous.

    Args:
        image: An image that :func:`takt.schema.check.check_image` accepts: RGB, channels first or
            last, ``uint8`` or float in [0, 1].
    """
    return _as_uint8(image if image.shape[2] == RGB else image.transpose(1, 2, 0))


def resized(image: NDArray[Any], camera: CameraSpec) -> NDArray[np.uint8]:
    """A new image as the policy sees it; see :func:`write_image`."""
    out = np.empty((camera.height, camera.width, RGB), np.uint8)
    write_image(image, camera, out)
    return out


def write_image(image: NDArray[Any], camera: CameraSpec, out: NDArray[np.uint8]) -> None:
    """Write ``image`` as the policy sees it.

    Args:
        image: An image that :func:`takt.schema.check.check_image` accepts: RGB, channels first or
            last, ``uint8`` or float in [0, 1].
        camera: Size and resize rule.
        out: ``(camera.height, camera.width, 3)``, overwritten.
    """
    pixels = as_rgb8(image)
    if pixels.shape == out.shape:
        out[...] = pixels
    elif camera.resize == "stretch":
        out[...] = _scaled(pixels, camera.height, camera.width, camera)
    else:
        _pad_into(pixels, camera, out)


@lru_cache(maxsize=1)
def resize_check() -> int:
    """A number that two computers share if their OpenCV resizes alike.

    It is computed from resized pictures, so it differs where a build of OpenCV rounds in another
    way, and says nothing of versions.
    """
    check = 0
    for (height, width), (new_height, new_width) in _CHECKED:
        picture = _picture(height, width)
        for rule in INTERPOLATION.values():
            scaled = cv2.resize(picture, (new_width, new_height), interpolation=rule)
            check = zlib.crc32(scaled.tobytes(), check)
    return check


def _picture(height: int, width: int) -> NDArray[np.uint8]:
    """Pixels without a pattern, the same everywhere."""
    places = np.arange(height * width * RGB, dtype=np.uint64)
    mixed = (places * np.uint64(2654435761)) >> np.uint64(11)
    return (mixed & np.uint64(255)).astype(np.uint8).reshape(height, width, RGB)


def _as_uint8(image: NDArray[Any]) -> NDArray[np.uint8]:
    if image.dtype == np.uint8:
        return np.ascontiguousarray(image)
    return np.ascontiguousarray(np.rint(image * 255.0).astype(np.uint8))


def _pad_into(pixels: NDArray[np.uint8], camera: CameraSpec, out: NDArray[np.uint8]) -> None:
    height, width = pixels.shape[:2]
    scale = min(camera.height / height, camera.width / width)
    new_height = max(1, min(camera.height, round(height * scale)))
    new_width = max(1, min(camera.width, round(width * scale)))
    share = 2 if camera.resize == "pad_center" else 1
    top, left = (camera.height - new_height) // share, (camera.width - new_width) // share
    out[...] = 0
    inner = out[top : top + new_height, left : left + new_width]
    inner[...] = _scaled(pixels, new_height, new_width, camera)


def _scaled(
    pixels: NDArray[np.uint8], height: int, width: int, camera: CameraSpec
) -> NDArray[np.uint8]:
    rule = INTERPOLATION[camera.interpolation]
    return cv2.resize(pixels, (width, height), interpolation=rule).astype(np.uint8, copy=False)
