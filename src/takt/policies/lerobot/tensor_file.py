"""Reads safetensors files, and nothing else, with every length checked before memory is taken.

Layout of the format: eight bytes with the length of the header (little-endian), the header (JSON:
name to dtype, shape and byte range), then the bytes of all tensors without gaps. A file that
names a tensor twice, leaves a gap or overlaps is refused whole.

Source: the format description of the safetensors project.
"""

from __future__ import annotations

import hashlib
import math
import mmap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from takt.errors import ConfigError
from takt.policies.lerobot.documents import parse_object

__all__ = ["StoredTensor", "TensorFile", "read_arrays", "sha256_of"]

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 1 << 24
_MAX_TENSORS = 1 << 16
_MAX_AXES = 8
_ITEM_BYTES = {
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "F32": 4,
    "I32": 4,
    "U32": 4,
    "F16": 2,
    "BF16": 2,
    "I16": 2,
    "U16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}
_NUMPY_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "BOOL": "?"}
_FOREIGN_STARTS = {
    b"\x80": "a pickle",
    b"PK": "a zip archive, which PyTorch uses for pickles",
    b"\x89HDF": "an HDF5 file",
    b"version https://git-lfs": "a Git LFS pointer; fetch the file itself with 'git lfs pull'",
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as the header describes it."""

    dtype: str
    """Spelled as in the file: ``F32``, ``BF16``, ..."""
    shape: tuple[int, ...]
    """Lengths of its axes."""
    start: int
    """First byte, from the end of the header."""
    stop: int
    """Byte after the last."""


class TensorFile:
    """A safetensors file, open and mapped. Use it in a ``with`` statement.

    Args:
        path: The file.

    Raises:
        ConfigError: It is missing, truncated, no safetensors file, or contradicts itself.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        except ValueError as error:  # mmap refuses an empty file
            raise ConfigError(f"{path}: the file is empty") from error
        try:
            self._data_start, self.tensors = _read_header(path, self._map)
        except BaseException:
            self._map.close()
            raise

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()

    def raw(self, name: str) -> bytearray:
        """A writable copy of a tensor's bytes."""
        stored, first = self.tensors[name], self._data_start
        return bytearray(self._map[first + stored.start : first + stored.stop])

    def array(self, name: str) -> NDArray[Any]:
        """A copy of a tensor of a dtype that NumPy has.

        Raises:
            ConfigError: It has another dtype.
        """
        stored = self.tensors[name]
        if stored.dtype not in _NUMPY_DTYPES:
            raise ConfigError(f"{self.path}: {name} has dtype {stored.dtype}, expected F32")
        return np.frombuffer(self.raw(name), _NUMPY_DTYPES[stored.dtype]).reshape(stored.shape)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Every tensor of a small file.

    Raises:
        ConfigError: As :class:`TensorFile`.
    """
    with TensorFile(path) as file:
        return {name: file.array(name) for name in file.tensors}


def sha256_of(paths: Iterable[Path]) -> str:
    """One digest of several files, names and lengths included."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"sha256:{digest.hexdigest()}"


def _read_header(path: Path, data: mmap.mmap) -> tuple[int, dict[str, StoredTensor]]:
    for start, what in _FOREIGN_STARTS.items():
        # A safetensors header of 0x4b50 or 0x80 bytes may start alike; its ninth byte is a brace.
        if data[: len(start)] == start and data[_LENGTH_BYTES : _LENGTH_BYTES + 1] != b"{":
            raise ConfigError(f"{path}: expected safetensors, this is {what}")
    size = len(data)
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    if size < _LENGTH_BYTES or length > min(_MAX_HEADER_BYTES, size - _LENGTH_BYTES):
        raise ConfigError(
            f"{path}: no safetensors file or truncated: it promises a header of {length} bytes,"
            f" the file has {size}"
        )
    data_start = _LENGTH_BYTES + length
    entries = parse_object(data[_LENGTH_BYTES:data_start], f"{path}: header")
    entries.pop("__metadata__", None)
    if len(entries) > _MAX_TENSORS:
        raise ConfigError(f"{path}: expected at most {_MAX_TENSORS} tensors, got {len(entries)}")
    tensors = {name: _read_entry(path, name, entry) for name, entry in entries.items()}
    _check_ranges(path, tensors, size - data_start)
    return data_start, tensors


def _read_entry(path: Path, name: str, entry: object) -> StoredTensor:
    fields: Mapping[str, Any] = cast("Any", entry) if isinstance(entry, dict) else {}
    dtype = fields.get("dtype")
    shape, offsets = _lengths(fields.get("shape")), _lengths(fields.get("data_offsets"))
    if dtype not in _ITEM_BYTES:
        raise ConfigError(f"{path}: {name} has the unknown dtype {str(dtype)[:40]!r}")
    if shape is None or offsets is None or len(offsets) != len(("start", "stop")):
        raise ConfigError(f"{path}: the header entry of {name} is not understood")
    stored = StoredTensor(str(dtype), shape, offsets[0], offsets[1])
    if math.prod(shape) * _ITEM_BYTES[stored.dtype] != stored.stop - stored.start:
        raise ConfigError(f"{path}: the byte range of {name} does not fit its shape")
    return stored


def _lengths(value: object) -> tuple[int, ...] | None:
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    if len(items) > _MAX_AXES or not all(type(i) is int and 0 <= i < 1 << 48 for i in items):
        return None
    return tuple(cast("list[int]", items))


def _check_ranges(path: Path, tensors: Mapping[str, StoredTensor], size: int) -> None:
    end = 0
    for name, stored in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].stop)):
        if stored.start != end:
            raise ConfigError(f"{path}: the bytes of {name} leave a gap or overlap another tensor")
        end = stored.stop
    if end != size:
        raise ConfigError(
            f"{path}: truncated or followed by other data: tensors take {end} bytes, there are"
            f" {size}"
        )
