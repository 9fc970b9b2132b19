"""Where the tensors of one row lie in a slot.

A slot starts with a header of fixed size, then come the tensors, each at a multiple of 64 bytes.
Gateway and worker compute the same :class:`SlotLayout` from the same list of fields; a
fingerprint in the header shows it when they did not.

The header names the request the bytes belong to. A reader checks it before and after it copies
(:meth:`SlotView.read`, :meth:`SlotView.holds`): bytes of another request are seen, not used.

Tensors have the largest shape a row may have. A smaller tensor lies in the leading corner, its
size in the header, and the rest is zeroed, so that nothing of the slot's former robot remains.
Start reading at :meth:`SlotLayout.of`.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from takt.errors import ConfigError, ObservationError, UsageError, WireError
from takt.link.messages import SlotRef

__all__ = ["ALIGNMENT_BYTES", "SlotField", "SlotLayout", "SlotView"]

ALIGNMENT_BYTES = 64
"""Tensors start at multiples of this: a cache line, and enough for any vector load."""
_MAX_FIELDS = 64
_MAX_RANK = 6
_DTYPES = frozenset({"|b1", "|u1", "|i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8"})
"""Element types a slot may hold: plain numbers, little-endian."""

# magic, fingerprint, epoch, generation, slot; the sizes of each tensor follow at byte 64.
_HEADER = struct.Struct("<4sIQQI")
_MAGIC = b"TAKT"
_DIMS_OFFSET = 64
_DIM_BYTES = 4
_MAX_DIM = 2**31 - 1

_Array: TypeAlias = NDArray[np.generic]
_FieldLike: TypeAlias = tuple[str, Iterable[int], str]


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotField:
    """One named tensor of a row."""

    name: str
    """Name of the tensor, as the policy's spec has it."""
    shape: tuple[int, ...]
    """Largest shape, without the batch dimension."""
    dtype: str
    """Element type in numpy's spelling, for example ``|u1`` or ``<f4``."""

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            known = ", ".join(sorted(_DTYPES))
            raise ConfigError(f"tensor {self.name!r}: dtype {self.dtype!r} is none of {known}")
        if len(self.shape) > _MAX_RANK or any(not 0 < dim <= _MAX_DIM for dim in self.shape):
            raise ConfigError(
                f"tensor {self.name!r}: expected at most {_MAX_RANK} positive sizes, "
                f"got {self.shape}"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor at its largest shape."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLayout:
    """Where each tensor of a row lies; computed once per model by both sides."""

    fields: tuple[SlotField, ...]
    """The tensors in the order of the policy's spec."""
    offsets: tuple[int, ...]
    """Byte at which each tensor starts."""
    slot_bytes: int
    """Bytes a slot needs, header included."""
    fingerprint: int
    """Checksum of the description; equal layouts have equal fingerprints."""

    @classmethod
    def of(cls, fields: Iterable[_FieldLike]) -> "SlotLayout":
        """Lay out tensors given as ``(name, shape, dtype)``.

        Raises:
            ConfigError: A name comes twice, or a tensor is not a fixed-shape array of numbers.
        """
        laid = tuple(
            SlotField(name=name, shape=tuple(shape), dtype=np.dtype(dtype).str)
            for name, shape, dtype in fields
        )
        if len({field.name for field in laid}) != len(laid) or len(laid) > _MAX_FIELDS:
            names = [field.name for field in laid]
            raise ConfigError(f"expected at most {_MAX_FIELDS} different tensor names, got {names}")
        end = _DIMS_OFFSET + len(laid) * _MAX_RANK * _DIM_BYTES
        offsets: list[int] = []
        for field in laid:
            offsets.append(_aligned(end))
            end = offsets[-1] + field.nbytes
        described = repr([(field.name, field.shape, field.dtype) for field in laid])
        return cls(
            fields=laid,
            offsets=tuple(offsets),
            slot_bytes=_aligned(end),
            fingerprint=zlib.crc32(described.encode()),
        )


class SlotView:
    """The bytes of one slot seen as the named arrays of one layout.

    Args:
        buffer: The slot's bytes; writable at the gateway, read-only at a worker.
        layout: How they are used.

    Raises:
        UsageError: The slot is smaller than the layout.
    """

    def __init__(self, buffer: memoryview, layout: SlotLayout) -> None:
        if buffer.nbytes < layout.slot_bytes:
            raise UsageError(f"layout needs {layout.slot_bytes} bytes, slot has {buffer.nbytes}")
        self._buffer = buffer
        self._layout = layout
        self._dims: NDArray[np.uint32] = np.ndarray(
            (len(layout.fields), _MAX_RANK), np.dtype("<u4"), buffer, _DIMS_OFFSET
        )
        self.full: Mapping[str, _Array] = {
            field.name: np.ndarray(field.shape, np.dtype(field.dtype), buffer, offset)
            for field, offset in zip(layout.fields, layout.offsets, strict=True)
        }
        """Every tensor at its largest shape; write straight into it when a row fills it."""
        self._index = {field.name: row for row, field in enumerate(layout.fields)}

    def stamp(self, ref: SlotRef) -> None:
        """Mark the bytes as this request's; call it before the first tensor is written."""
        _HEADER.pack_into(
            self._buffer,
            0,
            _MAGIC,
            self._layout.fingerprint,
            ref.epoch,
            ref.generation,
            ref.slot,
        )
        for row, field in zip(self._dims, self._layout.fields, strict=True):
            row[: len(field.shape)] = field.shape

    def put(self, name: str, value: _Array) -> None:
        """Copy a tensor into the slot.

        Args:
            name: Name of the tensor.
            value: _Array of the tensor's dtype and rank, no dimension larger than the layout's.

        Raises:
            ObservationError: Name, dtype or shape is not the layout's.
        """
        field = self._field_for(name, value)
        target = self.full[name]
        if value.shape != field.shape:
            target[...] = 0
        target[tuple(slice(dim) for dim in value.shape)] = value
        self._dims[self._index[name], : value.ndim] = value.shape

    def holds(self, ref: SlotRef) -> bool:
        """Whether the bytes are still this request's."""
        found = _HEADER.unpack_from(self._buffer)
        return found == (
            _MAGIC,
            self._layout.fingerprint,
            ref.epoch,
            ref.generation,
            ref.slot,
        )

    def read(self, ref: SlotRef) -> Mapping[str, _Array]:
        """The tensors of a request at their actual sizes, as views on the slot.

        Copy them, then ask :meth:`holds` before the copy is used.

        Raises:
            WireError: The slot holds another request, another layout or impossible sizes.
        """
        if not self.holds(ref):
            raise WireError(f"slot {ref.slot} does not hold generation {ref.generation}")
        return {
            field.name: self._actual(row, field) for row, field in enumerate(self._layout.fields)
        }

    def _actual(self, row: int, field: SlotField) -> _Array:
        dims = tuple(self._dims[row, : len(field.shape)].tolist())
        if dims == field.shape:
            return self.full[field.name]
        if any(dim > most for dim, most in zip(dims, field.shape, strict=True)):
            raise WireError(f"tensor {field.name!r}: expected at most {field.shape}, got {dims}")
        return self.full[field.name][tuple(slice(dim) for dim in dims)]

    def _field_for(self, name: str, value: _Array) -> SlotField:
        row = self._index.get(name)
        if row is None:
            known = ", ".join(self._index)
            raise ObservationError(name, expected=f"one of {known}", received="an unknown tensor")
        field = self._layout.fields[row]
        fits = value.ndim == len(field.shape) and all(
            dim <= most for dim, most in zip(value.shape, field.shape, strict=True)
        )
        if not fits or value.dtype != np.dtype(field.dtype):
            raise ObservationError(
                name,
                expected=f"{field.dtype} of at most {field.shape}",
                received=f"{value.dtype.str} of {value.shape}",
            )
        return field
