"""Plain values to MessagePack bytes.

The counterpart of :mod:`takt.wire.msgpack_decoding`. Every value takes its shortest spelling, as
the reference implementation does, so what a stock client wrote comes out byte for byte when it is
decoded and encoded again. Arrays are copied once, into the finished message.

Start reading at :func:`encode_values`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from takt.errors import UsageError

__all__ = ["Spell", "encode_values"]

Spell: TypeAlias = Callable[["NDArray[Any] | np.generic"], Mapping[Any, object]]
"""Turns an array or a numpy scalar into a map. Byte strings of the map may be any C-contiguous
buffer. May raise :class:`UsageError`."""

_Part: TypeAlias = "bytes | memoryview[int]"


def encode_values(value: object, spell: Spell) -> bytes:
    """Encode one message.

    Args:
        value: ``None``, bool, int, float, str, bytes-like, list, tuple, mapping with str or bytes
            keys, numpy array or scalar, in any combination.
        spell: How arrays and numpy scalars are written.

    Raises:
        UsageError: A value of another type, an integer beyond 64 bits, text that is not Unicode,
            or more than 32 levels of nesting. The message names the key.
    """
    encoder = _Encoder(spell)
    try:
        encoder.write(value)
    except (UsageError, UnicodeEncodeError) as error:
        place = ".".join(str(key) for key in encoder.path) or "message"
        raise UsageError(f"{place}: {error}") from None
    return b"".join(encoder.parts)


class _Head(NamedTuple):
    """How the length of a value, or a positive integer, is written."""

    short: int
    """First byte of the spelling that holds the number itself."""
    short_max: int
    """Largest number of that spelling; -1 when there is none."""
    long: tuple[tuple[int, int, Struct], ...]
    """(largest number, first byte, layout) of the spellings that hold it behind the first byte."""

    def of(self, number: int) -> bytes:
        if number <= self.short_max:
            return bytes((self.short + number,))
        for largest, first, layout in self.long:
            if number <= largest:
                return layout.pack(first, number)
        raise UsageError(f"{number} is more than the format holds")


def _long(first: int, codes: str) -> tuple[tuple[int, int, Struct], ...]:
    layouts = [Struct(f">B{code}") for code in codes]
    return tuple(
        (2 ** (8 * (layout.size - 1)) - 1, first + offset, layout)
        for offset, layout in enumerate(layouts)
    )


_POSITIVE = _Head(0x00, 0x7F, _long(0xCC, "BHIQ"))
_STRING = _Head(0xA0, 0x1F, _long(0xD9, "BHI"))
_BYTES = _Head(0, -1, _long(0xC4, "BHI"))
_LIST = _Head(0x90, 0x0F, _long(0xDC, "HI"))
_MAP = _Head(0x80, 0x0F, _long(0xDE, "HI"))
_NEGATIVE = tuple(
    (-(2 ** (8 * (layout.size - 1) - 1)), 0xD0 + offset, layout)
    for offset, layout in enumerate(map(Struct, (">Bb", ">Bh", ">Bi", ">Bq")))
)
_SHORT_NEGATIVE_MIN = -32
_FLOAT = Struct(">Bd")
_FLOAT_HEAD = 0xCB
_MAX_DEPTH = 32


def _integer(number: int) -> bytes:
    if number >= 0:
        return _POSITIVE.of(number)
    if number >= _SHORT_NEGATIVE_MIN:
        return bytes((0x100 + number,))
    for smallest, first, layout in _NEGATIVE:
        if number >= smallest:
            return layout.pack(first, number)
    raise UsageError(f"{number} is less than the format holds")


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _STRING.of(len(encoded)) + encoded


@functools.lru_cache(maxsize=1024)
def _key(key: object) -> bytes:
    """A key, which is the same in every message of a robot."""
    if isinstance(key, str):
        return _text(key)
    if isinstance(key, bytes):
        return _BYTES.of(len(key)) + key
    raise UsageError(f"a key must be a string, got {type(key).__name__}")


class _Encoder:
    """One message in the making: its parts, and the path to the value being written."""

    def __init__(self, spell: Spell) -> None:
        self.parts: list[_Part] = []
        self.path: list[object] = []
        self._spell = spell

    def write(self, value: object) -> None:
        # The order matters: bool is an int, and np.float64 is a float and travels as one.
        if isinstance(value, str):
            self._append(_text(value))
        elif value is None or isinstance(value, bool):
            self._append(b"\xc0" if value is None else b"\xc3" if value else b"\xc2")
        elif isinstance(value, int):
            self._append(_integer(value))
        elif isinstance(value, float):
            self._append(_FLOAT.pack(_FLOAT_HEAD, value))
        elif isinstance(value, (bytes, bytearray, memoryview)):
            self._write_bytes(cast("bytes | bytearray | memoryview[int]", value))
        else:
            self._write_compound(value)

    def _append(self, *parts: _Part) -> None:
        self.parts.extend(parts)

    def _write_bytes(self, value: "bytes | bytearray | memoryview[int]") -> None:
        view = memoryview(value)
        self._append(_BYTES.of(view.nbytes), view)

    def _write_compound(self, value: object) -> None:
        if len(self.path) > _MAX_DEPTH:
            raise UsageError(f"nested more than {_MAX_DEPTH} deep")
        if isinstance(value, (np.ndarray, np.generic)):
            self._write_map(self._spell(cast("NDArray[Any] | np.generic", value)))
        elif isinstance(value, Mapping):
            self._write_map(cast("Mapping[object, object]", value))
        elif isinstance(value, (list, tuple)):
            self._write_list(cast("Sequence[object]", value))
        else:
            raise UsageError(f"cannot send a value of type {type(value).__name__}")

    def _write_map(self, mapping: Mapping[Any, object]) -> None:
        self._append(_MAP.of(len(mapping)))
        for key, value in mapping.items():
            self.path.append(key)
            self._append(_key(key))
            self.write(value)
            self.path.pop()

    def _write_list(self, values: Sequence[object]) -> None:
        self._append(_LIST.of(len(values)))
        for index, value in enumerate(values):
            self.path.append(index)
            self.write(value)
            self.path.pop()
