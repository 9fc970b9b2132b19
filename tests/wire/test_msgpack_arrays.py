from collections.abc import Mapping
from functools import partial
from typing import Any

import msgpack
import msgpack_numpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from takt.errors import LimitError, ObservationError, RefusedError, UsageError
from takt.wire.limits import Account, Limits
from takt.wire.msgpack_arrays import ArrayReader, Dialect, spell_array
from takt.wire.msgpack_decoding import decode_values
from takt.wire.msgpack_encoding import encode_values

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.unicode_string_dtypes(endianness="?", max_len=5),
    hnp.byte_string_dtypes(max_len=5),
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
SCALARS = st.sampled_from(
    [
        np.bool_(True),
        np.int8(-7),
        np.int64(-(2**63)),
        np.uint64(2**64 - 1),
        np.float16(0.5),
        np.float32("inf"),
    ]
)
DIALECTS = st.sampled_from(Dialect)


def packed(value: object) -> bytes:
    data = msgpack.packb(value)
    assert data is not None
    return data


def read(value: object, **limits: int) -> tuple[Any, Dialect]:
    account = Account(Limits(**limits))
    reader = ArrayReader(account)
    return decode_values(packed(value), account, reader.read), reader.dialect


def written(value: object, dialect: Dialect) -> bytes:
    return encode_values(value, partial(spell_array, dialect=dialect))


def openpi(**changes: object) -> dict[bytes, object]:
    """A 2 x 3 array as openpi's client spells it, with changes."""
    spelled = {"__ndarray__": True, "data": bytes(24), "dtype": "<f4", "shape": [2, 3]} | changes
    return {key.encode(): value for key, value in spelled.items()}


def numpy_style(**changes: object) -> dict[bytes, object]:
    spelled: dict[str, object] = {"nd": True, "type": "<f4", "kind": b"", "shape": [2, 3]}
    spelled |= {"data": bytes(24)} | changes
    return {key.encode(): value for key, value in spelled.items()}


@given(ARRAYS, DIALECTS)
def test_an_array_survives_every_dialect(array: np.ndarray, dialect: Dialect) -> None:
    account = Account(Limits())
    reader = ArrayReader(account)

    decoded = decode_values(written([array], dialect), account, reader.read)

    assert isinstance(decoded, list)
    assert decoded[0].dtype.str == array.dtype.str
    assert decoded[0].shape == array.shape
    assert decoded[0].tobytes() == array.tobytes()
    assert not decoded[0].flags.writeable
    assert decoded[0].flags.aligned
    assert reader.dialect is dialect


@given(SCALARS, DIALECTS)
def test_a_numpy_scalar_survives_every_dialect(scalar: np.generic, dialect: Dialect) -> None:
    account = Account(Limits())

    decoded = decode_values(written(scalar, dialect), account, ArrayReader(account).read)

    assert type(decoded) is type(scalar)
    assert decoded == scalar


@pytest.mark.slow
@given(ARRAYS.filter(lambda array: array.dtype.kind not in "US" and array.size > 0))
def test_msgpack_numpy_writes_and_reads_the_same_bytes(array: np.ndarray) -> None:
    ours = written({"a": array}, Dialect.MSGPACK_NUMPY)

    theirs = msgpack.unpackb(ours, object_hook=msgpack_numpy.decode)["a"]

    assert ours == msgpack.packb({"a": array}, default=msgpack_numpy.encode)
    assert theirs.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "layout",
    [
        np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4)),
        np.arange(24, dtype=np.int16).reshape(4, 6)[::2, ::-1],
        np.broadcast_to(np.float32(1.5), (2, 3)),
    ],
)
def test_any_layout_is_written_in_c_order(layout: np.ndarray) -> None:
    decoded, _ = read(spell_array(layout, Dialect.OPENPI_STR_KEYS))

    assert np.array_equal(decoded, layout)


def test_an_8_bit_image_is_a_view_of_the_message() -> None:
    data = written({"image": np.zeros((4, 5, 3), np.uint8)}, Dialect.OPENPI)
    account = Account(Limits())

    decoded: Any = decode_values(data, account, ArrayReader(account).read)

    assert np.shares_memory(decoded["image"], np.frombuffer(data, np.uint8))


def test_the_first_array_names_the_dialect() -> None:
    scalar, array = np.float32(1), np.zeros(2)
    vllm = {key.decode(): value for key, value in spell_array(array, Dialect.VLLM_LEGACY).items()}

    # A scalar of vLLM legacy is one of msgpack-numpy.
    values = {"gain": dict(spell_array(scalar, Dialect.VLLM_LEGACY)), "a": vllm, "b": openpi()}

    assert read(values)[1] is Dialect.VLLM_LEGACY_STR_KEYS
    assert read({"gain": values["gain"]})[1] is Dialect.MSGPACK_NUMPY
    assert read({"gain": 1.0})[1] is Dialect.OPENPI


def test_dtypes_may_go_by_name_or_as_bytes() -> None:
    assert read(openpi(dtype="float32"))[0].dtype == np.float32
    assert read(openpi(dtype=b"<f4"))[0].dtype == np.float32


@pytest.mark.parametrize(
    "values", [{"nd": True}, {"complex": False, "data": 1}, {"data": 1, "shape": [2]}, {}]
)
def test_a_map_that_only_resembles_an_array_stays_a_map(values: Mapping[str, object]) -> None:
    assert read({"a": values})[0] == {"a": values}


@pytest.mark.parametrize(
    ("spelled", "expected", "received"),
    [
        (openpi(data=bytes(23)), "24 bytes for shape (2, 3) of <f4", "23"),
        (openpi(data=bytes(25)), "24 bytes for shape (2, 3) of <f4", "25"),
        (openpi(data="text"), "bytes as 'data' of an array", "'text'"),
        (openpi(data=[0.0] * 6), "bytes as 'data' of an array", "list"),
        (openpi(shape=[-2, -3]), "dimensions of 0 or more", "-2"),
        (openpi(shape=[2, 3.0]), "dimensions of 0 or more", "3.0"),
        (openpi(shape=[2, 3, True]), "dimensions of 0 or more", "True"),
        (openpi(shape=6), "a list of dimensions as 'shape' of an array", "6"),
        (openpi(dtype="|O"), "a dtype of ", "'|O'"),
        (openpi(dtype="|V4"), "a dtype of ", "'|V4'"),
        (openpi(dtype="<c8"), "a dtype of ", "'<c8'"),
        (openpi(dtype="<M8[ns]"), "a dtype of ", "'<M8[ns]'"),
        (openpi(dtype="<f16"), "a dtype of ", "'<f16'"),
        (openpi(dtype="<U0"), "a dtype of ", "'<U0'"),
        (openpi(dtype="f4,f4"), "a dtype of ", "'f4,f4'"),
        (openpi(dtype="x" * 99), "a dtype of ", "'" + "x" * 59 + "..."),
        (openpi(dtype=[["a", "<f4"]]), "a dtype of ", "list"),
        (openpi(dtype=None), "a dtype of ", "nothing"),
        (openpi(dtype="|b1", data=b"\x00\x01\x02" * 2), "bytes 0 and 1 in", "other bytes"),
        (openpi(dtype="<U1", data=b"\xff" * 24), "Unicode in an array", "a number that is no"),
        (openpi(dtype=">U1", data=b"\x00\x11\x00\x00" * 6), "Unicode in an array", "a number"),
        (numpy_style(kind=b"O"), "kind 'f' or none for <f4", "'O'"),
        (numpy_style(kind=b"V"), "kind 'f' or none for <f4", "'V'"),
        (numpy_style(kind=7), "kind as text", "7"),
        (numpy_style(type="|O", kind=b"O"), "a dtype of ", "'|O'"),
        (numpy_style(type=[["a", "<f4"]], kind=b"V"), "a dtype of ", "list"),
        (numpy_style(nd=1), "true or false as 'nd' of an array", "1"),
        (numpy_style(nd=False), "4 bytes for shape () of <f4", "24"),
        ({"complex": True, "data": "1j"}, "real numbers", "a complex number"),
    ],
)
def test_a_malformed_array_is_refused_by_key(
    spelled: Mapping[Any, object], expected: str, received: str
) -> None:
    with pytest.raises(ObservationError) as caught:
        read({"images": {"left": spelled}})

    assert caught.value.key == "images.left"
    assert caught.value.expected.startswith(expected)
    assert caught.value.received.startswith(received)


@pytest.mark.parametrize("missing", [b"data", b"dtype", b"shape"])
def test_an_array_that_lacks_a_part_is_refused(missing: bytes) -> None:
    spelled = openpi()
    del spelled[missing]

    with pytest.raises(ObservationError, match="got no "):
        read({"a": spelled})


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (1, "|b1"),
        (True, "<i4"),
        (128, "|i1"),
        (-1, "|u1"),
        (0.5, "<i4"),
        (70_000.0, "<f2"),
        (1e300, "<f4"),
        ("1", "<f4"),
        (None, "<f4"),
        ("x", "<U1"),
        ([1], "<f4"),
    ],
)
def test_a_scalar_that_its_dtype_does_not_hold_is_refused(number: object, dtype: str) -> None:
    spelled = {"__npgeneric__": True, "data": number, "dtype": dtype}

    with pytest.raises(ObservationError, match=f"gain: expected a number that .*{dtype[1:]} holds"):
        read({"gain": spelled})


@pytest.mark.parametrize(
    ("spelled", "limits", "message"),
    [
        (openpi(shape=[2**32, 2**32, 3], data=b""), {}, "elements in an array, got 553402"),
        (openpi(shape=[0, 2**62], data=b""), {}, "elements in an array, got 4611686018427387904"),
        (openpi(shape=[0] * 9), {}, "at most 8 dimensions, got 9"),
        (openpi(), {"max_elements": 5}, "at most 5 elements in an array, got 6"),
        (openpi(dtype="<U1"), {"max_string_bytes": 23}, "at most 23 bytes of text, got 24"),
        (openpi(), {"max_decoded_bytes": 50}, "at most 50 decoded bytes"),
    ],
)
def test_an_array_beyond_a_limit_is_refused(
    spelled: object, limits: dict[str, int], message: str
) -> None:
    with pytest.raises(LimitError, match=f"^a: expected .*{message}"):
        read({"a": spelled}, **limits)


def test_arrays_and_scalars_are_counted_together() -> None:
    scalar = dict(spell_array(np.float32(1), Dialect.OPENPI))

    with pytest.raises(LimitError, match=r"^c: expected at most 2 arrays and numpy scalars, got 3"):
        read({"a": openpi(), "b": scalar, "c": scalar}, max_arrays=2)


@pytest.mark.parametrize(
    "array",
    [
        np.array([object()]),
        np.array([1j]),
        np.zeros(1, [("a", "<f4")]),
        np.zeros(1, "<M8[s]"),
        np.zeros(1, np.longdouble),
        np.complex64(1),
    ],
)
def test_arrays_that_no_robot_may_be_sent_are_refused(array: np.ndarray) -> None:
    with pytest.raises(UsageError, match=r"^a: cannot send dtype"):
        written({"a": array}, Dialect.OPENPI)


@given(
    st.sampled_from([openpi, numpy_style]),
    st.dictionaries(
        st.sampled_from(["data", "dtype", "type", "shape", "kind", "nd", "__npgeneric__"]),
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats()
        | st.text(max_size=4)
        | st.binary(max_size=24)
        | st.sampled_from(["<f4", "|b1", "<U3", "|O", "|S4", ">i8"])
        | st.lists(st.integers(-2, 5), max_size=4),
        max_size=4,
    ),
)
def test_any_mixture_of_parts_is_an_array_or_refused(
    spelled: Any,  # noqa: ANN401
    changes: dict[str, object],
) -> None:
    try:
        decoded, _ = read(spelled(**changes))
    except RefusedError:
        return

    assert repr(decoded)  # every element can be read
    assert encode_values(decoded, partial(spell_array, dialect=Dialect.OPENPI))
