"""The ways in which MessagePack clients spell numpy arrays and scalars.

MessagePack has no arrays, so clients send a map instead. Three spellings are in use for the same
protocols:

- openpi-client: ``__ndarray__: true, data, dtype, shape``;
  a scalar is ``__npgeneric__: true, data, dtype`` with a plain number as data.
- msgpack-numpy: ``nd: true, type, kind: "", shape, data``;
  a scalar is ``nd: false, type, data`` with bytes as data.
- vLLM legacy: the same, with the dtype's kind character as ``kind``.

The keys are byte strings in the originals and text from clients in other languages. Takt reads
all of them and answers in the one it was asked in. Objects (kind ``O``, which would be a pickle),
structures (``V``) and complex numbers are refused, whatever they contain.

Start reading at :meth:`ArrayReader.read`; :func:`spell_array` is the other direction.
"""

import enum
import functools
import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from takt.errors import UsageError
from takt.wire.faults import refused, shown
from takt.wire.limits import Account
from takt.wire.msgpack_decoding import View, text_of
from takt.wire.msgpack_images import IMAGE_KEY, read_image

__all__ = ["AnyArray", "ArrayReader", "Dialect", "spell_array"]

AnyArray: TypeAlias = NDArray[Any]
_Found = TypeVar("_Found")


class Dialect(enum.Enum):
    """A spelling of arrays, and whether its keys are byte strings."""

    OPENPI = "openpi"
    OPENPI_STR_KEYS = "openpi_str_keys"
    MSGPACK_NUMPY = "msgpack_numpy"
    MSGPACK_NUMPY_STR_KEYS = "msgpack_numpy_str_keys"
    VLLM_LEGACY = "vllm_legacy"
    VLLM_LEGACY_STR_KEYS = "vllm_legacy_str_keys"

    @property
    def has_bytes_keys(self) -> bool:
        """Whether the keys of an array are byte strings rather than text."""
        return not self.value.endswith("_str_keys")

    @property
    def with_str_keys(self) -> "Dialect":
        """The same spelling with keys that are text."""
        return Dialect(self.value.removesuffix("_str_keys") + "_str_keys")


_OPENPI = frozenset({Dialect.OPENPI, Dialect.OPENPI_STR_KEYS})
_VLLM = frozenset({Dialect.VLLM_LEGACY, Dialect.VLLM_LEGACY_STR_KEYS})


class ArrayReader:
    """Reads the arrays of one message and remembers how they are spelled.

    Args:
        account: What the message may ask for. It is charged before an array is built.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self._of_arrays: Dialect | None = None
        self._of_scalars: Dialect | None = None
        self.sources: list[tuple[AnyArray, View]] = []
        """Every array so far and the bytes of the message it was made from."""

    @property
    def dialect(self) -> Dialect:
        """The spelling of the first array, else of the first scalar, else openpi's.

        Arrays go first because the scalars of vLLM legacy and msgpack-numpy look alike.
        """
        return self._of_arrays or self._of_scalars or Dialect.OPENPI

    def read(self, values: dict[str, object], has_bytes_keys: bool) -> object:
        """The array, numpy scalar or encoded image that a map spells, or the map itself.

        Args:
            values: A finished map whose byte strings are views of the message.
            has_bytes_keys: Whether a key was a byte string.

        Returns:
            A read-only array, a view of the message where its alignment allows; a numpy scalar;
            an :class:`~takt.schema.encoded_image.EncodedImage`; or ``values``.

        Raises:
            UnplacedError: The map spells an array that is refused or beyond the limits.
        """
        if "__ndarray__" in values:
            array, dialect = self._array(values, "dtype"), Dialect.OPENPI
        elif "__npgeneric__" in values:
            array, dialect = self._scalar(values), Dialect.OPENPI
        elif values.keys() >= {"nd", "type", "data"}:
            is_array = _field(values, "nd", bool, "true or false")
            array = self._array(values, "type") if is_array else self._packed_scalar(values)
            dialect = Dialect.VLLM_LEGACY if _kind(values) else Dialect.MSGPACK_NUMPY
        elif IMAGE_KEY in values:
            return read_image(values, self._account)
        elif values.get("complex") is True and "data" in values:
            raise refused("real numbers", "a complex number")
        else:
            return values
        self._remember(array, dialect if has_bytes_keys else dialect.with_str_keys)
        return array

    def _remember(self, array: AnyArray | np.generic, dialect: Dialect) -> None:
        if isinstance(array, np.ndarray):
            self._of_arrays = self._of_arrays or dialect
        else:
            self._of_scalars = self._of_scalars or dialect

    def _array(self, values: Mapping[str, object], dtype_key: str) -> AnyArray:
        dtype = _dtype(values, dtype_key)
        if _kind(values) not in {"", dtype.kind}:
            raise refused(f"kind {dtype.kind!r} or none for {dtype.str}", f"{_kind(values)!r}")
        shape = self._shape(
            cast("list[Any]", _field(values, "shape", list, "a list of dimensions"))
        )
        array = self._build(shape, dtype, values)
        self.sources.append((array, cast("View", values["data"])))
        return array

    def _shape(self, dimensions: list[Any]) -> tuple[int, ...]:
        """The shape, once every dimension is known to be a sane number."""
        self._account.check(len(dimensions), self._account.limits.max_rank, "dimensions")
        extent = 1
        for dimension in dimensions:
            if type(dimension) is not int or dimension < 0:
                raise refused("dimensions of 0 or more", f"{shown(dimension)}")
            # A zero counts as one: numpy refuses (0, 2**62) too, as its strides would overflow.
            extent *= dimension or 1
        self._account.check(extent, self._account.limits.max_elements, "elements in an array")
        return tuple(cast("list[int]", dimensions))

    def _build(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], values: Mapping[str, object]
    ) -> AnyArray:
        data = _field(values, "data", memoryview, "bytes")
        elements = math.prod(shape)
        needed = elements * dtype.itemsize
        if len(data) != needed:
            raise refused(f"{needed} bytes for shape {shape} of {dtype.str}", f"{len(data)}")
        if dtype.kind in "US":
            self._account.check(needed, self._account.limits.max_string_bytes, "bytes of text")
        self._account.charge_array(elements, needed)
        array: AnyArray = np.ndarray(shape, dtype, buffer=data)
        _check_contents(array)
        if not array.flags.aligned:
            # C extensions trip over unaligned numbers, some processors too. 8-bit images always are
            # aligned, and a copied state does not keep the images beside it in memory.
            array = array.copy()
            array.flags.writeable = False
        return array

    def _packed_scalar(self, values: Mapping[str, object]) -> np.generic:
        """A scalar that travels as its bytes."""
        return cast("np.generic", self._build((), _dtype(values, "type"), values)[()])

    def _scalar(self, values: Mapping[str, object]) -> np.generic:
        """A scalar that travels as a plain number."""
        dtype = _dtype(values, "dtype")
        number = values.get("data")
        if not _fits(number, dtype):
            raise refused(f"a number that {dtype.str} holds", shown(number))
        self._account.charge_array(1, dtype.itemsize)
        return dtype.type(number)


def spell_array(array: AnyArray | np.generic, dialect: Dialect) -> Mapping[Any, object]:
    """The map that spells an array or a numpy scalar in ``dialect``.

    Args:
        array: Any layout and byte order.
        dialect: How the client spells its own arrays.

    Returns:
        A map with str or bytes keys. Its data is a view of ``array`` where that is contiguous.

    Raises:
        UsageError: The dtype is none that robots may be sent: objects, structures, complex.
    """
    if _parse_dtype(array.dtype.str) is None:
        raise UsageError(f"cannot send dtype {array.dtype}; a dtype is {_DTYPES}")
    is_array = isinstance(array, np.ndarray)
    if dialect in _OPENPI:
        spelled = _spell_openpi(array) if is_array else _spell_openpi_scalar(array)
    else:
        kind = array.dtype.kind if dialect in _VLLM else ""
        spelled = _spell_numpy(array, kind) if is_array else _spell_numpy_scalar(array)
    if not dialect.has_bytes_keys:
        return spelled
    if is_array and "kind" in spelled:
        spelled["kind"] = cast("str", spelled["kind"]).encode()
    return {key.encode(): value for key, value in spelled.items()}


# The order of the keys is that of the original encoders.


def _spell_openpi(array: AnyArray) -> dict[str, object]:
    return {
        "__ndarray__": True,
        "data": _contiguous(array),
        "dtype": array.dtype.str,
        "shape": array.shape,
    }


def _spell_openpi_scalar(scalar: np.generic) -> dict[str, object]:
    return {"__npgeneric__": True, "data": scalar.item(), "dtype": scalar.dtype.str}


def _spell_numpy(array: AnyArray, kind: str) -> dict[str, object]:
    return {
        "nd": True,
        "type": array.dtype.str,
        "kind": kind,
        "shape": array.shape,
        "data": _contiguous(array),
    }


def _spell_numpy_scalar(scalar: np.generic) -> dict[str, object]:
    return {"nd": False, "type": scalar.dtype.str, "data": scalar.tobytes()}


def _contiguous(array: AnyArray) -> memoryview:
    # np.ascontiguousarray would give a 0-d array a dimension.
    return (array if array.flags.c_contiguous else array.copy(order="C")).data


_DTYPE = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|[US][1-9][0-9]{0,4})")
_DTYPE_NAMES = frozenset(
    ["bool", "float16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
_DTYPES = "bool, int or uint of 8 to 64 bits, float of 16 to 64 bits, or text (b, i, u, f, U, S)"


@functools.lru_cache(maxsize=256)
def _parse_dtype(text: str) -> np.dtype[Any] | None:
    """The dtype that ``text`` names, ``None`` when it is none of ours.

    A list of what is allowed, as ``np.dtype`` itself takes far more than numbers.
    """
    if _DTYPE.fullmatch(text) or text in _DTYPE_NAMES:
        return np.dtype(text)
    return None


def _dtype(values: Mapping[str, object], key: str) -> np.dtype[Any]:
    text = text_of(values.get(key))
    dtype = None if text is None else _parse_dtype(text)
    if dtype is None:
        received = "no dtype" if key not in values else shown(text if text else values[key])
        raise refused(f"a dtype of {_DTYPES}", received)
    return dtype


def _kind(values: Mapping[str, object]) -> str:
    """The ``kind`` of msgpack-numpy's spelling; empty when absent."""
    kind = text_of(values.get("kind", ""))
    if kind is None:
        raise refused("kind as text", shown(values["kind"]))
    return kind


def _field(values: Mapping[str, object], key: str, kind: type[_Found], expected: str) -> _Found:
    value = values.get(key)
    if not isinstance(value, kind):
        received = shown(value) if key in values else f"no {key!r}"
        raise refused(f"{expected} as {key!r} of an array", received)
    return value


def _fits(number: object, dtype: np.dtype[Any]) -> bool:
    """Whether ``dtype`` holds a number without turning it into another one."""
    if dtype.kind == "b":
        return isinstance(number, bool)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return False
    if dtype.kind == "f":
        return not math.isfinite(number) or abs(number) <= float(np.finfo(dtype).max)
    if dtype.kind in "iu" and isinstance(number, int):
        bounds = np.iinfo(dtype)
        return bounds.min <= number <= bounds.max
    return False


_LAST_CODE_POINT = 0x10FFFF


def _check_contents(array: AnyArray) -> None:
    """Refuse bit patterns that are no value of the dtype and surprise whoever reads them."""
    if not array.size:
        return
    if array.dtype.kind == "b" and array.view(np.uint8).max() > 1:
        raise refused("bytes 0 and 1 in an array of bool", "other bytes")
    if array.dtype.kind == "U":
        width = np.dtype(np.uint32).newbyteorder(array.dtype.byteorder)
        if (
            np.ndarray(array.nbytes // 4, width, buffer=array.data.cast("B")).max()
            > _LAST_CODE_POINT
        ):
            raise refused("Unicode in an array of text", "a number that is no character")
