"""The features that a LeRobot client declares: which joints and cameras it will send.

Stock clients send plain dicts as LeRobot's data sets have them (``dtype``, ``shape``, ``names``,
from 0.6 on also ``info``); clients of others send LeRobot's ``PolicyFeature`` objects (``type``,
``shape``), whose images have their channels first. Both become a :class:`LerobotFeature`.

Start reading at :func:`read_features`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from takt.errors import WireError
from takt.wire.lerobot_pickle import Global, Record, shown, shown_key
from takt.wire.limits import Account, UnplacedError

__all__ = ["FEATURE_NAMES", "LerobotFeature", "plain_feature", "read_features"]

_FEATURE = Global("lerobot.configs.types", "PolicyFeature")
_TYPE = Global("lerobot.configs.types", "FeatureType")
FEATURE_NAMES = frozenset({_FEATURE, _TYPE})
"""The classes that features may name."""

_TYPES = frozenset({"STATE", "VISUAL", "ENV", "ACTION", "REWARD", "LANGUAGE"})
_IMAGE_DTYPES = frozenset({"image", "video"})
_CHANNELS = frozenset({"channels", "channel"})
_FIELDS = frozenset({"dtype", "shape", "names", "info"})
_IMAGE_RANK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LerobotFeature:
    """One key of the observations to come."""

    dtype: str
    """``image`` or ``video`` for cameras, a numpy name (``float32``) for numbers."""
    shape: tuple[int, ...]
    """``(height, width, channels)`` of a camera, or channels first; ``(joints,)`` of a state."""
    names: tuple[str, ...] | None = None
    """Of the joints, in the order of the state; of the dimensions of an image. None when the client
    does not say."""
    is_depth: bool = False
    """Whether a camera measures distances."""

    @property
    def is_image(self) -> bool:
        """Whether this is a camera."""
        return self.dtype in _IMAGE_DTYPES

    @property
    def has_channels_first(self) -> bool:
        """Whether an image is declared as ``(channels, height, width)``."""
        return self.is_image and self.names is not None and self.names[0] in _CHANNELS

    @property
    def image_size(self) -> tuple[int, int, int]:
        """Height, width and channels of a camera; its images come in this order in any case.

        Raises:
            WireError: This is no camera, or its shape has not three sizes.
        """
        if not self.is_image or len(self.shape) != _IMAGE_RANK:
            raise _wrong(f"expected a camera of three sizes, got {self.dtype} {self.shape}")
        if self.has_channels_first:
            channels, height, width = self.shape
        else:
            height, width, channels = self.shape
        return height, width, channels


def read_features(value: object, account: Account, place: str) -> dict[str, LerobotFeature]:
    """The declared features by key, in the order of the client.

    Args:
        value: What the pickle holds.
        account: Charged for what is kept.
        place: Where the features stand, for errors.

    Raises:
        WireError: They are no features; the message names the one at fault.
    """
    features: dict[str, LerobotFeature] = {}
    for key, feature in _a_dict(value, place).items():
        inner = f"{place}.{shown_key(key)}"
        try:
            features[key] = _read(feature, account, inner)
        except UnplacedError as error:
            raise error.at(inner) from None
    return features


def plain_feature(feature: LerobotFeature) -> dict[str, object]:
    """The dict that a stock client sends for a feature."""
    plain: dict[str, object] = {
        "dtype": feature.dtype,
        "shape": feature.shape,
        "names": None if feature.names is None else list(feature.names),
    }
    return plain | {"info": {"is_depth_map": True}} if feature.is_depth else plain


def _read(value: object, account: Account, place: str) -> LerobotFeature:
    if isinstance(value, Record):
        return _read_policy_feature(value, account, place)
    fields = _a_dict(value, place)
    if not fields.keys() <= _FIELDS:
        unknown = min(fields.keys() - _FIELDS)
        raise _wrong(f"{place}: expected {', '.join(sorted(_FIELDS))}, got {unknown!a}")
    dtype = fields.get("dtype")
    if not isinstance(dtype, str):
        raise _wrong(f"{place}.dtype: expected text, got {shown(dtype)}")
    names = _names(fields.get("names"), account)
    shape = _shape(fields.get("shape"), account, place)
    is_depth = dtype in _IMAGE_DTYPES and _is_depth(fields.get("info"), shape)
    return LerobotFeature(dtype=dtype, shape=shape, names=names, is_depth=is_depth)


def _read_policy_feature(record: Record, account: Account, place: str) -> LerobotFeature:
    if record.function != _FEATURE or record.arguments:
        raise _wrong(f"{place}: expected a feature, got {shown(record)}")
    fields = _a_dict(record.state, place)
    shape = _shape(fields.get("shape"), account, place)
    if _type(fields.get("type"), place) != "VISUAL":
        return LerobotFeature(dtype="float32", shape=shape)
    if len(shape) != _IMAGE_RANK:
        raise _wrong(f"{place}.shape: expected (channels, height, width), got {shape}")
    return LerobotFeature(dtype="image", shape=shape, names=("channels", "height", "width"))


def _type(value: object, place: str) -> str:
    """The name of a ``FeatureType``, which is an enumeration with its names as values."""
    name = value.arguments[0] if isinstance(value, Record) and value.arguments else value
    if not isinstance(name, str) or name not in _TYPES:
        known = ", ".join(sorted(_TYPES))
        raise _wrong(f"{place}.type: expected one of {known}, got {shown(name)}")
    return name


def _shape(value: object, account: Account, place: str) -> tuple[int, ...]:
    numbers = cast("tuple[Any, ...]", value) if type(value) in {tuple, list} else None
    if numbers is None:
        raise _wrong(f"{place}.shape: expected a tuple of sizes, got {shown(value)}")
    account.check(len(numbers), account.limits.max_rank, "dimensions")
    for number in numbers:
        if type(number) is not int or number < 1:
            raise _wrong(f"{place}.shape: expected sizes of 1 or more, got {shown(number)}")
        account.check(number, account.limits.max_elements, "as a size")
    return tuple(numbers)


def _names(value: object, account: Account) -> tuple[str, ...] | None:
    """Names where they are a plain list of text; data sets have other forms, which say less."""
    names = cast("list[object]", value) if type(value) in {tuple, list} else []
    account.charge_values(len(names))
    if not names or not all(isinstance(name, str) for name in names):
        return None
    return tuple(cast("list[str]", names))


def _is_depth(info: object, shape: tuple[int, ...]) -> bool:
    """Whether an image holds distances: as the client says, else when it has one channel."""
    said = cast("Mapping[str, object]", info).get("is_depth_map") if type(info) is dict else None
    return said if isinstance(said, bool) else shape[-1:] == (1,)


def _a_dict(value: object, place: str) -> Mapping[str, object]:
    if type(value) is not dict:
        raise _wrong(f"{place}: expected a dict, got {shown(value)}")
    return cast("Mapping[str, object]", value)


def _wrong(message: str) -> WireError:
    return WireError(message)
