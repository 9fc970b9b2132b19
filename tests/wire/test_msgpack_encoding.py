from collections import UserDict
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import UsageError
from takt.wire.msgpack_encoding import encode_values

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=300)
    | st.binary(max_size=300)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=40) | st.dictionaries(st.text() | st.binary(max_size=9), inner)
    ),
    max_leaves=30,
)


def spell(array: Any) -> Mapping[str, object]:  # noqa: ANN401
    return {"spelled": array.tolist()}


@pytest.mark.slow
@given(VALUES)
def test_the_bytes_are_those_of_the_reference_implementation(value: object) -> None:
    assert encode_values(value, spell) == msgpack.packb(value)


@pytest.mark.parametrize("exponent", range(65))
def test_integers_around_every_power_of_two_take_their_shortest_spelling(exponent: int) -> None:
    near = {2**exponent - 1, 2**exponent, -(2**exponent), -(2**exponent) - 1, -(2**exponent) + 1}
    for number in sorted(near):
        if -(2**63) <= number < 2**64:
            assert encode_values(number, spell) == msgpack.packb(number)


@pytest.mark.parametrize("size", [31, 32, 255, 256, 65_535, 65_536])
def test_lengths_around_every_boundary_take_their_shortest_spelling(size: int) -> None:
    for value in ("x" * size, b"x" * size, [None] * size, {str(i): i for i in range(size)}):
        assert encode_values(value, spell) == msgpack.packb(value)


def test_tuples_go_as_lists_and_any_mapping_as_a_map() -> None:
    assert encode_values((1, UserDict(a=2)), spell) == msgpack.packb([1, {"a": 2}])


def test_any_contiguous_buffer_goes_as_bytes() -> None:
    buffer = np.arange(6, dtype=">i2").reshape(2, 3).data

    assert encode_values(buffer, spell) == msgpack.packb(bytes(buffer))
    assert encode_values(bytearray(b"ab"), spell) == msgpack.packb(b"ab")


def test_arrays_and_numpy_scalars_go_as_they_are_spelled() -> None:
    value = [np.arange(2), np.float32(0.5)]

    assert encode_values(value, spell) == msgpack.packb([{"spelled": [0, 1]}, {"spelled": 0.5}])


def test_the_numpy_double_is_a_python_float_and_goes_as_one() -> None:
    assert encode_values(np.float64(0.5), spell) == msgpack.packb(0.5)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [0, {1}]}, r"^a\.1: cannot send a value of type set$"),
        ({"a": 2**64}, "^a: 18446744073709551616 is more than the format holds"),
        ({"a": -(2**63) - 1}, "^a: -9223372036854775809 is less than the format holds"),
        ({"a": {1: 2}}, r"^a\.1: a key must be a string, got int"),
        ({"a": "\ud800"}, "^a: .*surrogates not allowed"),
        (object(), "^message: cannot send a value of type object"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_place(value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        encode_values(value, spell)


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(UsageError, match="nested more than 32 deep"):
        encode_values(endless, spell)
