import pickle  # noqa: TID251 - numpy writes what is read here
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from takt.errors import LimitError, ObservationError, UsageError
from takt.wire.lerobot_arrays import (
    ALLOWED,
    AnyArray,
    ArrayReader,
    array_record,
    tensor_record,
    tensor_storage,
)
from takt.wire.lerobot_pickle import Global, PickleReader, Record
from takt.wire.lerobot_writing import write_pickle
from takt.wire.limits import Account, Limits, UnplacedError

DTYPES = (
    stn.boolean_dtypes()
    | stn.integer_dtypes(endianness="?")
    | stn.unsigned_integer_dtypes(endianness="?")
    | stn.floating_dtypes(endianness="?", sizes=(16, 32, 64))
)
ARRAYS = DTYPES.flatmap(
    lambda dtype: stn.arrays(dtype, stn.array_shapes(min_dims=0, max_dims=4, min_side=0))
)
DTYPE = Record(Global("numpy", "dtype"), ("f4", False, True))
SCALAR = Global("numpy.core.multiarray", "scalar")
TENSOR = Global("torch._utils", "_rebuild_tensor_v2")
STORAGE = Global("torch.storage", "_load_from_bytes")
ENCODE = Global("_codecs", "encode")


def read(data: bytes, **limits: int) -> AnyArray:
    pickles = PickleReader(Account(Limits(**limits)))
    record, _ = pickles.read(memoryview(data), ALLOWED)
    assert isinstance(record, Record)
    return ArrayReader(pickles).read(record)


def meant_by(record: Record, **limits: int) -> AnyArray:
    return read(write_pickle(record), **limits)


def refused(record: Record, **limits: int) -> UnplacedError:
    with pytest.raises(UnplacedError) as caught:
        meant_by(record, **limits)
    return caught.value


def array(shape: object, data: object, **state: object) -> Record:
    """A call of ``_reconstruct`` with this state."""
    fields = {"version": 1, "shape": shape, "dtype": DTYPE, "is_fortran": False, "data": data}
    return Record(
        Global("numpy._core.multiarray", "_reconstruct"),
        (Global("numpy", "ndarray"), (0,), b"b"),
        state=tuple({**fields, **state}.values()),
    )


def tensor(elements: int = 6, **fields: object) -> Record:
    """A call of ``_rebuild_tensor_v2`` on a storage of this many elements."""
    given_ = {
        "storage": tensor_storage(np.arange(elements, dtype=np.float32)),
        "offset": 0,
        "size": (elements,),
        "stride": (1,),
        "requires_grad": False,
        "hooks": Record(Global("collections", "OrderedDict")),
    }
    return Record(TENSOR, tuple({**given_, **fields}.values()))


@settings(max_examples=50)
@given(ARRAYS, st.integers(2, 5), st.booleans())
def test_what_numpy_pickles_is_read(value: AnyArray, protocol: int, is_transposed: bool) -> None:
    value = value.T if is_transposed else value

    found = read(pickle.dumps(value, protocol))

    np.testing.assert_array_equal(found, value)
    assert found.dtype == value.dtype
    assert found.flags.aligned
    assert not found.flags.writeable


@settings(max_examples=50)
@given(ARRAYS)
def test_both_spellings_of_numpy_are_read(value: AnyArray) -> None:
    data = pickle.dumps(value, 2)

    old = data.replace(b"numpy._core", b"numpy.core")

    np.testing.assert_array_equal(read(old), value)


@settings(max_examples=50)
@given(DTYPES.flatmap(lambda dtype: stn.arrays(dtype, ())), st.integers(2, 5))
def test_numpy_scalars_are_arrays_of_rank_0(value: AnyArray, protocol: int) -> None:
    found = read(pickle.dumps(value[()], protocol))

    assert found.shape == ()
    np.testing.assert_array_equal(found, value)


@settings(max_examples=50)
@given(ARRAYS)
def test_arrays_survive_the_wire(value: AnyArray) -> None:
    found = meant_by(array_record(value))

    np.testing.assert_array_equal(found, value)
    assert found.dtype == value.dtype


def test_an_image_is_a_view_of_the_message() -> None:
    data = pickle.dumps(np.ones((4, 5, 3), np.uint8), 4)

    image: Any = read(data)
    while isinstance(image, np.ndarray):
        image = image.base

    assert image is data


@pytest.mark.parametrize("dtype", ["O", "U4", "S4", "c8", "M8[s]", "V8", "g"])
def test_other_dtypes_are_neither_read_nor_sent(dtype: str) -> None:
    value = np.zeros(2, dtype)

    with pytest.raises(UnplacedError, match="a dtype of bool, int"):
        read(pickle.dumps(value, 2))
    with pytest.raises(UsageError, match="cannot send an array of"):
        array_record(value)


def test_structures_are_refused() -> None:
    state = (3, "|", None, ("a",), {}, 4, 1, 0)
    dtype = Record(Global("numpy", "dtype"), ("f4", False, True), state=state)

    assert refused(array((1,), bytes(4), dtype=dtype)).received == "a structure"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (array((2,), bytes(4)), "8 bytes for shape (2,) of float32"),
        (array((-1,), b""), "dimensions of 0 or more"),
        (array((True,), bytes(4)), "dimensions of 0 or more"),
        (array((2.0,), bytes(8)), "dimensions of 0 or more"),
        (array([1], bytes(4)), "a tuple of dimensions"),
        (array((1,), [0.5]), "an array of numbers"),
        (array((1,), "text"), "bytes of an array"),
        (array((1,), Record(ENCODE, ("abcd", "rot13"))), "bytes spelled as latin1"),
        (array((1,), Record(ENCODE, ("ab€d", "latin1"))), "bytes spelled as latin1"),
        (array((1,), bytes(4), is_fortran=None), "whether an array is in Fortran order"),
        (array((1,), bytes(4), dtype=None), "a dtype of bool, int"),
        (array((1,), bytes(4), further=0), "the state of an array of 5 parts"),
        (Record(SCALAR, (DTYPE,)), "arguments of 2 parts"),
        (Record(SCALAR, (DTYPE, b"abc")), "4 bytes for shape ()"),
        (Record(ENCODE, ("abcd", "latin1")), "a number, text or an array"),
        (Record(Global("numpy", "dtype"), ("f4", False, True)), "a number, text or an array"),
        (tensor(storage=None), "a tensor's storage"),
        (tensor(size=(7,)), "a tensor inside its storage of 6 elements"),
        (tensor(offset=1), "a tensor inside its storage"),
        (tensor(offset=-1), "a tensor inside its storage"),
        (tensor(stride=(1, 1)), "a tensor inside its storage"),
        (tensor(stride=(-1,)), "strides of 0 or more"),
        (tensor(storage=Record(STORAGE, (b"\x80\x02cos\nsystem\n.",))), "only classes"),
        (tensor(storage=Record(STORAGE, (b"\x80\x02N." * 5,))), "torch's version 1001"),
    ],
)
def test_an_array_that_contradicts_itself_is_refused(record: Record, expected: str) -> None:
    assert expected in refused(record).expected


def test_a_subclass_of_an_array_is_refused() -> None:
    record = array((1,), bytes(4))
    record.arguments = (Global("numpy", "dtype"), *record.arguments[1:])

    assert refused(record).received == "a subclass of one"


def test_a_truth_value_is_0_or_1() -> None:
    data = pickle.dumps(np.full(300, fill_value=True), 4).replace(b"\x01" * 300, b"\x02" * 300)

    with pytest.raises(UnplacedError, match="bytes 0 and 1"):
        read(data)


@pytest.mark.parametrize(
    ("record", "limits", "what"),
    [
        (array((1,) * 9, bytes(4)), {}, "dimensions"),
        (array((2**40,), b""), {}, "as one of the dimensions"),
        (array((0, 2**20, 2**20), b""), {}, "elements in an array"),
        (array((9,), bytes(36)), {"max_elements": 8}, "dimensions"),
        (array((9,), bytes(36)), {"max_decoded_bytes": 35}, "decoded bytes"),
        (tensor(), {"max_arrays": 1}, "arrays and numpy scalars"),
        # A stride of 0 repeats an element without memory: what follows would pay for it.
        (tensor(size=(2**13, 2**14), stride=(0, 0)), {}, "elements in an array"),
    ],
)
def test_an_array_beyond_the_limits_is_refused(
    record: Record, limits: dict[str, int], what: str
) -> None:
    error = refused(record, **limits)

    assert error.kind is LimitError
    assert what in error.expected


def test_long_text_that_spells_bytes_is_read_and_charged() -> None:
    value = np.arange(256, dtype=np.uint8).repeat(400)
    data = pickle.dumps(value, 2)

    np.testing.assert_array_equal(read(data, max_string_bytes=1000), value)
    with pytest.raises(UnplacedError, match="at most 200000 decoded bytes"):
        read(data, max_decoded_bytes=200_000)


def test_a_tensor_is_a_part_of_its_storage() -> None:
    columns = tensor(size=(2, 2), stride=(1, 2), offset=1)

    np.testing.assert_array_equal(meant_by(columns), [[1, 3], [2, 4]])
    assert meant_by(tensor(size=(0, 3), stride=(3, 1))).shape == (0, 3)


def test_tensors_share_the_storage_they_name_together() -> None:
    storage = tensor_storage(np.arange(6, dtype=np.float32))
    rows = (
        tensor_record(storage, offset=0, width=3),
        tensor_record(storage, offset=3, width=3),
    )
    pickles = PickleReader(Account(Limits()))
    read_rows, _ = pickles.read(memoryview(write_pickle(rows)), ALLOWED)
    reader = ArrayReader(pickles)

    first, second = map(reader.read, read_rows)  # type: ignore[arg-type]

    np.testing.assert_array_equal(np.concatenate([first, second]), np.arange(6))
    assert pickles.account.decoded_bytes < 2 * 6 * 4 + 300


def test_an_error_names_no_place_because_none_is_known_here() -> None:
    error = refused(array((2,), bytes(4)))

    assert error.kind is ObservationError
    assert str(error.at("front")) == ("front: expected 8 bytes for shape (2,) of float32, got 4")
