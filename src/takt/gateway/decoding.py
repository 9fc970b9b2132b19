"""Decodes the images of an observation, on the threads that prepare rows.

Only the cameras that the policy names are decoded; a policy that names none is sent any, so there
all are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from takt.errors import ObservationError
from takt.schema.encoded_image import EncodedImage
from takt.schema.observation import Array, Observation, image_key
from takt.schema.spec import ObservationSpec
from takt.wire.image_files import decode_image
from takt.wire.limits import UnplacedError

__all__ = ["with_decoded_images"]

_NONE: Mapping[str, Any] = MappingProxyType({})


def with_decoded_images(observation: Observation, spec: ObservationSpec) -> Observation:
    """The observation with arrays in place of files.

    Args:
        observation: As a door read it.
        spec: What the policy takes.

    Raises:
        ObservationError: An image is damaged, not what was announced, or must not be encoded
            because the policy reads several instants at once.
    """
    if not observation.encoded:
        return observation
    cameras = {camera.name for camera in spec.cameras} or observation.encoded.keys()
    decoded: dict[str, Array] = {
        camera: _decoded(observation.spelling(image_key(camera)), image, spec.history)
        for camera, image in observation.encoded.items()
        if camera in cameras
    }
    return replace(observation, images={**observation.images, **decoded}, encoded=_NONE)


def _decoded(key: str, image: EncodedImage, history: int) -> Array:
    if history > 1:
        raise ObservationError(
            key,
            expected=f"{history} images as one array; this policy takes no encoded images",
            received=f"one {image.encoding} image",
        )
    try:
        return decode_image(image)
    except UnplacedError as error:
        raise error.at(key) from None
