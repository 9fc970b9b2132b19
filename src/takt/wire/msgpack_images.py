"""How an encoded image is spelled in a MessagePack message: a map in place of the array.

::

    {"__image__": true, "format": "jpeg", "data": <the file>, "shape": [height, width, 3]}

``format`` is ``jpeg`` or ``png``. The shape is announced so that it can be charged to the message's
account before anything is decoded.
"""

from collections.abc import Mapping
from typing import cast

from takt.schema.check import MAX_IMAGE_SIDE, RGB
from takt.schema.encoded_image import ENCODINGS, EncodedImage, ImageEncoding
from takt.wire.faults import MAX_SHOWN, refused, shown
from takt.wire.limits import Account
from takt.wire.msgpack_decoding import View, text_of

__all__ = ["IMAGE_KEY", "read_image", "spell_image"]

IMAGE_KEY = "__image__"
"""The key by which such a map is known."""

_BY_NAME: Mapping[str, ImageEncoding] = {name: name for name in ENCODINGS}
_KEYS = frozenset({IMAGE_KEY, "format", "data", "shape"})


def spell_image(image: EncodedImage) -> dict[str, object]:
    """The map that spells an image."""
    return {
        IMAGE_KEY: True,
        "format": image.encoding,
        "data": image.data,
        "shape": [*image.shape],
    }


def read_image(values: Mapping[str, object], account: Account) -> EncodedImage:
    """The image that a map spells; it is not decoded.

    Args:
        values: A map with the key ``__image__``, byte strings being views of the message.
        account: Charged with the image's pixels.

    Raises:
        UnplacedError: The map is malformed, or the image beyond the limits.
    """
    unknown = [key for key in values if key not in _KEYS]
    if values[IMAGE_KEY] is not True or unknown:
        received = f"the key {unknown[0][:MAX_SHOWN]!a}" if unknown else "something else"
        raise refused(f"an image of {IMAGE_KEY} true, format, data and shape", received)
    given = values.get("format")
    text = text_of(given)
    encoding = _BY_NAME.get(text or "")
    if encoding is None:
        raise refused(f"an image of format {' or '.join(ENCODINGS)}", shown(text or given))
    found = values.get("data")
    if not isinstance(found, memoryview) or not found:
        raise refused(f"the {encoding} file as bytes in 'data'", shown(cast("object", found)))
    data, shape = cast("View", found), _shape(values.get("shape"))
    image = EncodedImage(encoding=encoding, data=data, shape=shape)
    account.charge_array(image.decoded_bytes, image.decoded_bytes)
    return image


def _shape(value: object) -> tuple[int, int, int]:
    expected = f"shape [height, width, {RGB}] of an image, sides of 1..{MAX_IMAGE_SIDE} pixels"
    if not isinstance(value, list):
        raise refused(expected, shown(value))
    sides = cast("list[object]", value)
    if len(sides) != len("HWC"):
        raise refused(expected, f"{len(sides)} numbers")
    height, width, colours = sides
    if _is_side(height) and _is_side(width) and type(colours) is int and colours == RGB:
        return cast("tuple[int, int, int]", (height, width, colours))
    raise refused(expected, ", ".join(shown(side) for side in sides))


def _is_side(value: object) -> bool:
    return type(value) is int and 1 <= value <= MAX_IMAGE_SIDE
