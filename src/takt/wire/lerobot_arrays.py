"""The numbers, numpy arrays and torch tensors of LeRobot's messages, without torch.

:mod:`takt.wire.lerobot_pickle` says which functions a pickle would have called with what. Here the
few that make arrays get their meaning: numpy's ``_reconstruct``, ``_frombuffer`` and ``scalar`` in
the spellings of numpy 1 and 2, ``_codecs.encode`` (bytes in protocol 2), and the two functions
behind a torch tensor. dtype, shape and byte count are checked before an array is made; an array is
a read-only view of the message where its alignment allows.

Objects, structures, text, complex and brain floats are refused. ``torch.storage._load_from_bytes``
would unpickle its argument; here that must be one of torch's own plain storages, byte for byte in
the form in which ``torch.save`` wrote it.

Start reading at :meth:`ArrayReader.read`; :func:`array_record` and :func:`tensor_storage` are the
other direction.
"""

import math
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from takt.errors import UsageError
from takt.wire.faults import refused
from takt.wire.lerobot_pickle import Global, LongText, PickleReader, Record, View, shown
from takt.wire.lerobot_writing import integer_bytes

__all__ = ["ALLOWED", "AnyArray", "ArrayReader", "array_record", "tensor_record", "tensor_storage"]

AnyArray: TypeAlias = NDArray[Any]

_NDARRAY = Global("numpy", "ndarray")
_DTYPE = Global("numpy", "dtype")
_ENCODE = Global("_codecs", "encode")
_NO_BYTES = Global("__builtin__", "bytes")
"""Called without arguments: how protocol 2 spells no bytes at all."""
_TENSOR = Global("torch._utils", "_rebuild_tensor_v2")
_STORAGE = Global("torch.storage", "_load_from_bytes")
_ORDERED_DICT = Global("collections", "OrderedDict")
_RECONSTRUCT = Global("numpy.core.multiarray", "_reconstruct")
"""In the spelling of numpy 1, which numpy 2 reads too."""
_PERSISTENT = Global("takt", "persistent")
"""Stands for torch's storages inside ``_load_from_bytes``; no pickle can name it."""

_DTYPES = {
    f"{kind}{size}": np.dtype(f"{kind}{size}")
    for kind, sizes in (("b", "1"), ("i", "1248"), ("u", "1248"), ("f", "248"))
    for size in sizes
}
_STORAGE_DTYPES = {
    Global("torch", f"{name}Storage"): np.dtype("<" + code)
    for name, code in (
        ("Float", "f4"),
        ("Double", "f8"),
        ("Half", "f2"),
        ("Long", "i8"),
        ("Int", "i4"),
        ("Short", "i2"),
        ("Char", "i1"),
        ("Byte", "u1"),
        ("Bool", "b1"),
    )
}
_BYTE_ORDERS = frozenset("<>|=")
_EXPECTED_DTYPE = "a dtype of bool, int or uint of 8 to 64 bits, or float of 16 to 64 bits"


class ArrayReader:
    """Gives the records of one message that make numbers and arrays their meaning.

    Args:
        pickles: The reader of the message, whose account is charged.
    """

    def __init__(self, pickles: PickleReader) -> None:
        self._pickles = pickles
        self._account = pickles.account

    def read(self, record: Record) -> AnyArray:
        """The array, of rank 0 for a scalar, that a record stands for.

        Raises:
            UnplacedError: It stands for something else, for an array that is refused, or for one
                beyond the limits.
        """
        read = _READERS.get(record.function)
        if read is None:
            raise refused("a number, text or an array", f"{record.function.name}")
        return read(self, record)

    def read_reconstructed(self, record: Record) -> AnyArray:
        """``_reconstruct(ndarray, (0,), b"b")`` and its state: numpy arrays up to protocol 4."""
        if record.arguments[:1] != (_NDARRAY,):
            raise refused("a plain array", "a subclass of one")
        *_, shape, dtype, is_fortran, data = _fields(record.state, (4, 5), "the state of an array")
        if not isinstance(is_fortran, int):
            raise refused("whether an array is in Fortran order", shown(is_fortran))
        return self._build(shape, _dtype(dtype), data, "F" if is_fortran else "C")

    def read_frombuffer(self, record: Record) -> AnyArray:
        """``_frombuffer(data, dtype, shape, order)``: numpy arrays in protocol 5."""
        data, dtype, shape, order, *axes = _fields(record.arguments, (4, 5), "arguments")
        if order == "K" and axes:
            return _transposed(self._build(shape, _dtype(dtype), data, "C"), axes[0])
        if not isinstance(order, str) or order not in {"C", "F"}:
            raise refused("order C or F of an array", shown(order))
        return self._build(shape, _dtype(dtype), data, order)

    def read_scalar(self, record: Record) -> AnyArray:
        """``scalar(dtype, data)``."""
        dtype, data = _fields(record.arguments, (2,), "arguments")
        return self._build((), _dtype(dtype), data, "C")

    def read_tensor(self, record: Record) -> AnyArray:
        """``_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)``."""
        storage, offset, size, stride, *_ = _fields(record.arguments, (6, 7), "arguments")
        flat = self._storage(storage)
        shape, strides = self._shape(size), self._numbers(stride, "strides")
        reach = sum((n - 1) * step for n, step in zip(shape, strides, strict=False))
        is_inside = type(offset) is int and offset >= 0 and offset + reach < flat.size
        if len(shape) != len(strides) or (not is_inside and 0 not in shape):
            raise refused(
                f"a tensor inside its storage of {flat.size} elements",
                f"shape {shape}, strides {strides}, offset {shown(offset)}",
            )
        self._charge(shape, flat.dtype)
        begin = 0 if 0 in shape else cast("int", offset)
        step = flat.dtype.itemsize
        array: AnyArray = np.lib.stride_tricks.as_strided(
            flat[begin:], shape, [step * stride for stride in strides], writeable=False
        )
        return array

    def _storage(self, record: object) -> AnyArray:
        """The elements of a storage, read once however many tensors share it."""
        if not isinstance(record, Record) or record.function != _STORAGE:
            raise refused("a tensor's storage", "something else")
        if record.meaning is None:
            (blob,) = _fields(record.arguments, (1,), "arguments")
            record.meaning = self._saved(self._bytes(blob))
        return cast("AnyArray", record.meaning)

    def _saved(self, blob: View) -> AnyArray:
        """What ``torch.save`` wrote: five pickles, the number of elements, the elements."""
        parts: list[object] = []
        position = 0
        for _ in range(5):
            part, position = self._pickles.read(
                blob, _STORAGE_DTYPES, start=position, has_persistent=_PERSISTENT
            )
            parts.append(part)
        magic, version, system, storage, keys = parts
        if (magic, version) != (_MAGIC, _VERSION):
            raise refused(f"a tensor saved in torch's version {_VERSION}", "another form")
        if not isinstance(system, dict) or cast("Any", system).get("little_endian") is not True:
            raise refused("a tensor saved in little-endian order", "another order")
        dtype, key = _storage_id(storage)
        if keys != [key]:
            raise refused("one storage in a tensor", "another number")
        if len(blob) - position < _COUNT.size:
            raise refused("the elements of a tensor", "the end of its bytes")
        (count,) = _COUNT.unpack_from(blob, position)
        return self._build((count,), dtype, blob[position + _COUNT.size :], "C")

    def _build(self, shape: object, dtype: np.dtype[Any], data: object, order: str) -> AnyArray:
        dimensions = self._shape(shape)
        view = self._bytes(data)
        needed = math.prod(dimensions) * dtype.itemsize
        if len(view) != needed:
            expected = f"{needed} bytes for shape {dimensions} of {dtype}"
            raise refused(expected, f"{len(view)}")
        self._charge(dimensions, dtype)
        array: AnyArray = np.ndarray(dimensions, dtype, buffer=view, order=cast("Any", order))
        if dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
            raise refused("bytes 0 and 1 in an array of bool", "other bytes")
        return _aligned(array)

    def _shape(self, dimensions: object) -> tuple[int, ...]:
        """A shape whose product is known to be sane."""
        numbers = self._numbers(dimensions, "dimensions")
        # A zero counts as one, as numpy multiplies the other dimensions for its strides.
        extent = math.prod(number or 1 for number in numbers)
        self._account.check(extent, self._account.limits.max_elements, "elements in an array")
        return numbers

    def _numbers(self, value: object, what: str) -> tuple[int, ...]:
        """A tuple of small numbers."""
        limits = self._account.limits
        numbers = _plain_tuple(value)
        if numbers is None:
            raise refused(f"a tuple of {what}", shown(value))
        self._account.check(len(numbers), limits.max_rank, what)
        for number in numbers:
            if type(number) is not int or number < 0:
                raise refused(f"{what} of 0 or more", shown(number))
            self._account.check(number, limits.max_elements, f"as one of the {what}")
        return numbers

    def _charge(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        elements = math.prod(shape)
        self._account.charge_array(elements, elements * dtype.itemsize)

    def _bytes(self, data: object) -> View:
        if isinstance(data, memoryview):
            return cast("View", data)
        if isinstance(data, Record) and data.function == _ENCODE:
            return self._encoded(data)
        if isinstance(data, Record) and data.function == _NO_BYTES and not data.arguments:
            return memoryview(b"")
        if isinstance(data, list):
            raise refused("an array of numbers", "an array of objects")
        raise refused("bytes of an array", shown(data))

    def _encoded(self, record: Record) -> View:
        """``_codecs.encode(text, "latin1")``: how protocol 2 spells bytes."""
        text, codec = _fields(record.arguments, (2,), "arguments")
        if codec != "latin1" or not isinstance(text, (str, LongText)):
            raise refused("bytes spelled as latin1", shown(codec))
        # Charged before it is decoded: text takes up to four bytes a character for a moment.
        self._account.charge_bytes(len(text) if isinstance(text, str) else len(text.utf8))
        try:
            decoded = text if isinstance(text, str) else str(text.utf8, "utf-8")
            return memoryview(decoded.encode("latin-1"))
        except UnicodeError:
            raise refused("bytes spelled as latin1", "other characters") from None


_READERS: Mapping[Global, Callable[[ArrayReader, Record], AnyArray]] = {
    _TENSOR: ArrayReader.read_tensor,
    **{
        Global(f"numpy.{core}.{module}", name): read
        for core in ("core", "_core")
        for module, name, read in (
            ("multiarray", "_reconstruct", ArrayReader.read_reconstructed),
            ("multiarray", "scalar", ArrayReader.read_scalar),
            ("numeric", "_frombuffer", ArrayReader.read_frombuffer),
        )
    },
}

ALLOWED = frozenset({*_READERS, _NDARRAY, _DTYPE, _ENCODE, _NO_BYTES, _STORAGE, _ORDERED_DICT})
"""Every class and function that numbers, arrays and tensors name."""


def array_record(array: AnyArray) -> Record:
    """The call that makes an array, in the spelling that numpy 1 and 2 read.

    Raises:
        UsageError: The dtype is none that a robot may send.
    """
    dtype = array.dtype
    if dtype.str[1:] not in _DTYPES:
        raise UsageError(f"cannot send an array of {dtype}; expected {_EXPECTED_DTYPE}")
    spelled = Record(
        _DTYPE,
        (dtype.str[1:], False, True),
        state=(3, dtype.str[0], None, None, None, -1, -1, 0),
    )
    return Record(
        _RECONSTRUCT,
        (_NDARRAY, (0,), b"b"),
        state=(1, array.shape, spelled, False, array.tobytes()),
    )


def tensor_record(storage: Record, *, offset: int, width: int) -> Record:
    """The call that makes a tensor of ``width`` elements of a storage, one after the other."""
    hooks = Record(_ORDERED_DICT)
    return Record(_TENSOR, (storage, offset, (width,), (1,), False, hooks))


def tensor_storage(elements: NDArray[np.float32]) -> Record:
    """The call that makes a torch storage on the CPU with these elements.

    Args:
        elements: Contiguous, of any shape.
    """
    count = elements.size
    return Record(
        _STORAGE,
        (
            b"".join(
                (
                    _SAVED_HEAD,
                    integer_bytes(count),
                    _SAVED_TAIL,
                    _COUNT.pack(count),
                    elements.astype("<f4", copy=False).tobytes(),
                )
            ),
        ),
    )


# The form of torch.save without zip files: pickles of a magic number, a version, facts about the
# machine, the storage and a list of storage keys; then the number of elements and the elements.
_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_COUNT = Struct("<q")
_STORAGE_PARTS = 6
_KEY = b"X\x01\x00\x00\x000"
_SAVED_HEAD = b"".join(
    (
        b"\x80\x02\x8a\n",
        _MAGIC.to_bytes(10, "little"),
        b".\x80\x02M\xe9\x03.",
        b"\x80\x02}q\x00(X\x10\x00\x00\x00protocol_versionq\x01M\xe9\x03",
        b"X\r\x00\x00\x00little_endianq\x02\x88X\n\x00\x00\x00type_sizesq\x03}q\x04(",
        b"X\x05\x00\x00\x00shortq\x05K\x02X\x03\x00\x00\x00intq\x06K\x04",
        b"X\x04\x00\x00\x00longq\x07K\x04uu.",
        b"\x80\x02(X\x07\x00\x00\x00storageq\x00ctorch\nFloatStorage\nq\x01",
        _KEY,
        b"q\x02X\x03\x00\x00\x00cpuq\x03",
    )
)
_SAVED_TAIL = b"".join((b"Ntq\x04Q.\x80\x02]q\x00", _KEY, b"q\x01a."))


def _storage_id(record: object) -> tuple[np.dtype[Any], str]:
    """The dtype and the key of ``("storage", class, key, device, elements, None)``."""
    if not isinstance(record, Record) or record.function != _PERSISTENT:
        raise refused("a tensor's storage", "something else")
    _, named, key, device, *_ = _fields(record.arguments[0], (_STORAGE_PARTS,), "a storage")
    dtype = _STORAGE_DTYPES.get(named) if isinstance(named, Global) else None
    if dtype is None:
        raise refused("a storage of numbers", shown(named))
    if not isinstance(key, str):
        raise refused("a storage's key", shown(key))
    if device != "cpu":
        raise refused("a tensor on the CPU", f"a tensor on {shown(device)}")
    return dtype, key


def _dtype(value: object) -> np.dtype[Any]:
    """The dtype of ``dtype("f4", False, True)`` and its state."""
    if not isinstance(value, Record) or value.function != _DTYPE:
        raise refused(_EXPECTED_DTYPE, shown(value))
    code = value.arguments[0] if value.arguments else None
    dtype = _DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise refused(_EXPECTED_DTYPE, shown(code))
    if value.state is None:
        return dtype
    _, order, *structure = _fields(value.state, (8,), "the state of a dtype")
    if any(part is not None for part in structure[:3]):
        raise refused(_EXPECTED_DTYPE, "a structure")
    if not isinstance(order, str) or order not in _BYTE_ORDERS:
        raise refused("a byte order", shown(order))
    return dtype.newbyteorder(cast("Any", order))


def _transposed(array: AnyArray, axes: object) -> AnyArray:
    """``array`` with its axes in another order, as numpy 2 pickles views of images."""
    numbers = _plain_tuple(axes) or ()
    is_order = all(type(number) is int for number in numbers)
    if not is_order or sorted(numbers) != list(range(array.ndim)):
        raise refused("an order of all axes", shown(axes))
    return array.transpose(numbers)


def _fields(value: object, counts: tuple[int, ...], what: str) -> tuple[Any, ...]:
    """A plain tuple of one of the expected lengths."""
    fields = _plain_tuple(value)
    if fields is None or len(fields) not in counts:
        received = "something else" if fields is None else f"{len(fields)}"
        raise refused(f"{what} of {counts[-1]} parts", received)
    return fields


def _plain_tuple(value: object) -> tuple[Any, ...] | None:
    """``value`` when it is a tuple and none of the tuples with names; else None."""
    return cast("tuple[Any, ...]", value) if type(value) is tuple else None


def _aligned(array: AnyArray) -> AnyArray:
    """``array`` itself, or a read-only copy where its numbers straddle their natural places."""
    if array.flags.aligned:
        return array
    copied = array.copy(order="K")
    copied.flags.writeable = False
    return copied
