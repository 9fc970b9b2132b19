"""A camera image that travels as a JPEG or PNG file, as its sender announces it.

What the sender announces is not believed: whoever decodes it compares it with the file first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

__all__ = ["ENCODINGS", "EncodedImage", "ImageEncoding"]

ImageEncoding: TypeAlias = Literal["jpeg", "png"]
"""How an image is encoded. PNG gives back every pixel, JPEG nearly."""

ENCODINGS: tuple[ImageEncoding, ...] = get_args(ImageEncoding)
"""All of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedImage:
    """One RGB image of 8 bits per colour, not decoded yet."""

    encoding: ImageEncoding
    data: bytes | memoryview
    """The whole file; may be a view of a network buffer."""
    shape: tuple[int, int, int]
    """``(height, width, 3)``, as announced."""

    @property
    def decoded_bytes(self) -> int:
        """Memory that its pixels will take, if the announcement is true."""
        return math.prod(self.shape)

    def owned(self) -> EncodedImage:
        """The same image with bytes of its own, for whoever has to keep it."""
        return replace(self, data=bytes(self.data))
