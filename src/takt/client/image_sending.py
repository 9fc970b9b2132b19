"""Camera images as a server takes them: resized by its own rule, encoded if it decodes them.

What a server takes stands in its greeting: the cameras with their sizes in the model's card, and
under ``images`` the encodings and the number by which a robot sees that its OpenCV resizes as the
server's does. Whatever the server does not offer is left out, and a sentence says so; a server
that offers nothing gets every image as it was handed over.

Start reading at :meth:`NegotiatedImages.prepare`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from takt.client.image_settings import ImageSettings
from takt.errors import ObservationError
from takt.schema.check import check_image
from takt.schema.encoded_image import EncodedImage, ImageEncoding
from takt.schema.spec import CameraSpec, ObservationSpec
from takt.wire.camera_keys import camera_named, with_slashes
from takt.wire.image_files import encode_image
from takt.wire.msgpack_images import spell_image

__all__ = ["NegotiatedImages", "Prepared"]


class Prepared(NamedTuple):
    """An observation that is ready to be sent."""

    values: Mapping[str, object]
    spared_bytes: int
    """Bytes that its images have less than as they were handed over."""


class NegotiatedImages:
    """What is done to the images of one connection.

    Args:
        settings: What the robot wants.
        offer: The part ``images`` of the server's greeting; None: it has none.
        spec: What the model takes; None: the server does not say.
    """

    def __init__(
        self,
        settings: ImageSettings,
        offer: Mapping[str, object] | None,
        spec: ObservationSpec | None,
    ) -> None:
        self.encoding: ImageEncoding | None = None
        """How images are encoded; None: they are sent as arrays."""
        self.resized: Mapping[str, CameraSpec] = {}
        """Cameras whose images are resized, where that makes them smaller."""
        self.refusals: tuple[str, ...] = ()
        """What the robot wants and does not get, in sentences."""
        self._quality = settings.jpeg_quality
        self._cameras = {} if spec is None else {camera.name: camera for camera in spec.cameras}
        if settings.send != "as_given":
            self._negotiate(settings, {} if offer is None else offer)

    def prepare(self, observation: Mapping[str, object]) -> Prepared:
        """An observation with its images as they are sent; the one handed in is not changed.

        What is no image that a policy could take is left as it is: the server says what is wrong
        with it.
        """
        if self.encoding is None and not self.resized:
            return Prepared(observation, 0)
        spared: list[int] = []
        return Prepared(self._prepared(observation, "", spared), sum(spared))

    def _negotiate(self, settings: ImageSettings, offer: Mapping[str, object]) -> None:
        refusals: list[str] = []
        scaled = [camera for camera in self._cameras.values() if camera.resize != "exact"]
        fixed = ", ".join(camera.name for camera in scaled if not camera.robot_may_resize)
        if fixed:
            refusals.append(f"{fixed}: not resized here, as only the server can do it exactly")
        resized = {camera.name: camera for camera in scaled if camera.robot_may_resize}
        why_not = _why_not_resize(offer.get("resize_check")) if resized else None
        if why_not is None:
            self.resized = resized
        else:
            refusals.append(f"{', '.join(resized)}: not resized here, as {why_not}")
        wanted = settings.send
        if wanted in ("png", "jpeg"):
            if _has(offer.get("encodings"), wanted):
                self.encoding = wanted
            else:
                refusals.append(f"no image is encoded, as the server takes no {wanted}")
        self.refusals = tuple(refusals)

    # Recursion is safe here: these are the robot's own values.
    def _prepared(
        self, values: Mapping[str, object], before: str, spared: list[int]
    ) -> dict[str, object]:
        prepared: dict[str, object] = {}
        for key, value in values.items():
            if isinstance(value, Mapping):
                inner = cast("Mapping[str, object]", value)
                prepared[key] = self._prepared(inner, f"{before}{key}/", spared)
            elif isinstance(value, np.ndarray):
                prepared[key] = self._image(before + key, cast("NDArray[Any]", value), spared)
            else:
                prepared[key] = value
        return prepared

    def _image(self, key: str, image: NDArray[Any], spared: list[int]) -> object:
        camera = camera_named(with_slashes(key), self._cameras)
        # A model that names no cameras may be sent any; floats may be anything then.
        is_known = camera in self._cameras or (not self._cameras and image.dtype == np.uint8)
        if not is_known or not _is_image(camera, image):
            return image
        pixels = self._resize(image, self.resized.get(camera))
        encoded = self._encode(pixels)
        sent = pixels.nbytes if encoded is None else len(encoded.data)
        spared.append(image.nbytes - sent)
        return pixels if encoded is None else spell_image(encoded)

    def _resize(self, image: NDArray[Any], camera: CameraSpec | None) -> NDArray[Any]:
        if camera is None:
            return image
        from takt.schema.resizing import as_rgb8, resized

        pixels = as_rgb8(image)  # what the server does first, too
        is_larger = pixels.nbytes > camera.height * camera.width * pixels.shape[2]
        return resized(pixels, camera) if is_larger else pixels

    def _encode(self, pixels: NDArray[Any]) -> EncodedImage | None:
        """The image as a file; None: it is none that can be encoded, or would be no smaller."""
        # Floats have more than 256 values, and what is encoded without loss keeps them.
        if self.encoding is None or (pixels.dtype != np.uint8 and self.encoding == "png"):
            return None
        from takt.schema.resizing import as_rgb8

        rgb = as_rgb8(pixels)
        data = encode_image(rgb, self.encoding, jpeg_quality=self._quality)
        if len(data) >= pixels.nbytes:
            return None
        height, width, colours = rgb.shape
        return EncodedImage(encoding=self.encoding, data=data, shape=(height, width, colours))


def _is_image(camera: str, image: NDArray[Any]) -> bool:
    """Whether an array is an image that a policy could take."""
    try:
        check_image(camera, image)
    except ObservationError:
        return False
    return True


def _why_not_resize(check: object) -> str | None:
    """Why images must not be resized here; None: the server would do exactly the same."""
    if check is None:
        return "the server does not say how it does it"
    from takt.schema.resizing import resize_check

    if check == resize_check():
        return None
    return "the OpenCV of this computer computes other pixels than the server's"


def _has(offered: object, encoding: ImageEncoding) -> bool:
    return isinstance(offered, list) and encoding in cast("list[object]", offered)
