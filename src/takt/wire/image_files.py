"""Pixels to JPEG or PNG files and back. Red stays red: every array here is RGB.

JPEG is simplejpeg's and PNG OpenCV's business. A robot's computer need not have either, so they
are imported when they are used; :func:`available_encodings` says beforehand what there is.

Start reading at :func:`decode_image`.
"""

from __future__ import annotations

from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from takt.errors import UsageError
from takt.schema.encoded_image import EncodedImage, ImageEncoding
from takt.wire.faults import refused
from takt.wire.image_headers import check_jpeg, checked_png

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PACKAGES", "available_encodings", "decode_image", "encode_image"]

PACKAGES: Mapping[ImageEncoding, str] = MappingProxyType({"jpeg": "simplejpeg", "png": "cv2"})
"""What each encoding is done with."""

_QUICKEST = 1
"""Of the levels of compression: twice the time saves a twentieth."""


def available_encodings() -> tuple[ImageEncoding, ...]:
    """The encodings whose package is installed."""
    return tuple(name for name, package in PACKAGES.items() if find_spec(package) is not None)


def encode_image(
    image: NDArray[np.uint8], encoding: ImageEncoding, *, jpeg_quality: int = 95
) -> bytes:
    """Encode an image; the package for it must be installed.

    Args:
        image: RGB, ``(height, width, 3)``.
        encoding: How.
        jpeg_quality: 1 to 100. Colour keeps its full resolution at every quality.

    Returns:
        The file.

    Raises:
        UsageError: The image cannot be encoded.
    """
    pixels = np.ascontiguousarray(image)
    if encoding == "jpeg":
        import simplejpeg  # pyright: ignore[reportMissingTypeStubs]

        return simplejpeg.encode_jpeg(
            pixels, quality=jpeg_quality, colorspace="RGB", colorsubsampling="444"
        )
    import cv2

    bgr = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    done, file = cv2.imencode(".png", bgr, [cv2.IMWRITE_PNG_COMPRESSION, _QUICKEST])
    if not done:
        raise UsageError(f"an image of shape {image.shape} cannot be encoded as PNG")
    return file.tobytes()


def decode_image(image: EncodedImage) -> NDArray[np.uint8]:
    """The pixels of an image that a stranger sent.

    Args:
        image: Its announced size was charged to the message's account.

    Returns:
        A new array, RGB, of the announced shape.

    Raises:
        UnplacedError: The file is damaged or not what was announced, or there is nothing here to
            decode it with.
    """
    if find_spec(PACKAGES[image.encoding]) is None:
        here = ", ".join(available_encodings()) or "arrays"
        raise refused(f"{here}, which is what this server decodes", image.encoding)
    height, width, _ = image.shape
    data = memoryview(image.data).cast("B")
    if image.encoding == "jpeg":
        check_jpeg(data, height, width)
        pixels = _jpeg_pixels(data)
    else:
        pixels = _png_pixels(checked_png(data, height, width))
    if pixels.shape != image.shape:
        raise refused(f"an image of shape {image.shape} as announced", f"one of {pixels.shape}")
    return pixels


def _jpeg_pixels(data: memoryview) -> NDArray[np.uint8]:
    import simplejpeg  # pyright: ignore[reportMissingTypeStubs]

    try:
        # Strict: a damaged file is refused instead of made up with grey.
        decoded: Any = simplejpeg.decode_jpeg(data, colorspace="RGB", strict=True)
    except ValueError as error:
        raise refused("a JPEG file that decodes", f"one that is damaged ({error})") from None
    return cast("NDArray[np.uint8]", decoded)


def _png_pixels(file: bytes) -> NDArray[np.uint8]:
    import cv2

    try:
        decoded: Any = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:
        decoded = None
    if decoded is None:
        raise refused("a PNG file that decodes", "one that is damaged")
    return cast("NDArray[np.uint8]", cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB))
