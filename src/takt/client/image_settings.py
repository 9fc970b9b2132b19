"""How a robot wants its camera images sent.

::

    connect("server:8000", images="jpeg")
    connect("server:8000", images=ImageSettings(send="jpeg", jpeg_quality=95))
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, TypeAlias, get_args

from takt.errors import ConfigError
from takt.wire.image_files import PACKAGES

__all__ = ["ImageSettings", "SendImages"]

SendImages: TypeAlias = Literal["as_given", "resized", "png", "jpeg"]
"""``as_given``: arrays, as the robot hands them over. ``resized``: in the size the policy sees,
where that changes none of its pixels. ``png``: the same, then encoded without loss. ``jpeg``: the
same, then encoded with a little loss, in a tenth of the bytes."""

_RESIZING = "cv2"
_NEEDED: Mapping[SendImages, tuple[str, ...]] = {
    "as_given": (),
    "resized": (_RESIZING,),
    "png": (_RESIZING, PACKAGES["png"]),
    "jpeg": (_RESIZING, PACKAGES["jpeg"]),
}
_NAMES = {"cv2": "opencv-python-headless"}
_MAX_QUALITY = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """What is done to images before they are sent, where the server takes it.

    Raises:
        ConfigError: A value is impossible, or the packages for it are not installed.
    """

    send: SendImages = "as_given"
    """How they are sent."""
    jpeg_quality: int = 95
    """1 to 100; more is nearer to the picture and takes more bytes. A picture in the size of the
    policy has its detail in few pixels, so it needs more than a large one."""

    def __post_init__(self) -> None:
        if self.send not in get_args(SendImages):
            known = ", ".join(get_args(SendImages))
            raise ConfigError(f"images must be one of {known}, got {self.send!r}")
        if not 1 <= self.jpeg_quality <= _MAX_QUALITY:
            raise ConfigError(
                f"jpeg_quality must lie in 1..{_MAX_QUALITY}, got {self.jpeg_quality}"
            )
        for package in _NEEDED[self.send]:
            if find_spec(package) is None:
                raise ConfigError(
                    f"images={self.send!r} needs {_NAMES.get(package, package)}, which is not"
                    " installed; install: pip install 'takt-serve[images]'"
                )
