"""Camera images to the size and format a policy reads; the only place that resizes."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from takt.schema.spec import CameraSpec

__all__ = ["INTERPOLATION", "RGB", "write_image"]

RGB = 3
INTERPOLATION = {"linear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA}


def write_image(image: NDArray[Any], camera: CameraSpec, out: NDArray[np.uint8]) -> None:
    """Write ``image`` as the policy sees it.

    Args:
        image: An image that :func:`takt.schema.check.check_image` accepts: RGB, channels first or
            last, ``uint8`` or float in [0, 1].
        camera: Size and resize rule.
        out: ``(camera.height, camera.width, 3)``, overwritten.
    """
    pixels = _as_uint8(image if image.shape[2] == RGB else image.transpose(1, 2, 0))
    if pixels.shape == out.shape:
        out[...] = pixels
    elif camera.resize == "stretch":
        out[...] = _scaled(pixels, camera.height, camera.width, camera)
    else:
        _pad_into(pixels, camera, out)


def _as_uint8(image: NDArray[Any]) -> NDArray[np.uint8]:
    if image.dtype == np.uint8:
        return np.ascontiguousarray(image)
    return np.rint(image * 255.0).astype(np.uint8)


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
