import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import LimitError, ObservationError, WireError
from takt.wire.limits import Account, Limits, UnplacedError
from takt.wire.msgpack_decoding import decode_values

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=40)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=30,
)


def packed(value: object, *, use_single_float: bool = False) -> bytes:
    data = msgpack.packb(value, use_single_float=use_single_float)
    assert data is not None
    return data


def keep(values: dict[str, object], has_bytes_keys: bool) -> object:
    return values


def decode(data: bytes, **limits: int) -> Any:  # noqa: ANN401
    return decode_values(data, Account(Limits(**limits)), keep)


@pytest.mark.slow
@given(VALUES)
def test_what_the_reference_implementation_writes_is_read(value: object) -> None:
    assert decode(packed(value)) == value


@pytest.mark.parametrize(
    "value", [0.5, -0.5, "x" * 300, "x" * 70_000, b"x" * 300, b"x" * 70_000, [1] * 4000]
)
def test_every_width_of_a_length_is_read(value: object) -> None:
    assert decode(packed(value), max_string_bytes=100_000) == value
    assert decode(packed(value, use_single_float=True), max_string_bytes=100_000) == value


def test_keys_that_are_bytes_become_text_and_are_reported() -> None:
    seen: list[bool] = []

    def note(values: dict[str, object], has_bytes_keys: bool) -> object:
        seen.append(has_bytes_keys)
        return values

    data = packed({"a": {b"b": 1}})

    assert decode_values(data, Account(Limits()), note) == {"a": {"b": 1}}
    assert seen == [True, False]


def test_byte_strings_are_views_of_the_message_until_their_map_is_closed() -> None:
    seen: list[object] = []

    def note(values: dict[str, object], has_bytes_keys: bool) -> object:
        seen.append(values["image"])
        return len(values)

    data = packed({"image": b"pixels"})

    assert decode_values(memoryview(data), Account(Limits()), note) == 1
    assert isinstance(seen[0], memoryview)
    assert seen[0].obj is data
    assert seen[0].readonly


def test_byte_strings_that_nobody_took_are_copied() -> None:
    decoded = decode(packed({"a": b"1", "b": [b"2"], "c": {}}))

    assert decoded == {"a": b"1", "b": [b"2"], "c": {}}
    assert type(decoded["a"]) is bytes
    assert type(decoded["b"][0]) is bytes


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "message: expected a value, got the end of the message"),
        (b"\x82\xa1a\x01", "message: expected 2 entries, got 3 more bytes"),
        (b"\x92\x01", "message: expected 2 elements, got 1 more bytes"),
        (b"\xa5abc", "message: expected 5 more bytes, got 3"),
        (b"\xcd\x01", "message: expected the rest of a number, got the end of the message"),
        (b"\x91\xc1", r"\[0\]: expected nil, bool, .*, got an extension type or 0xc1"),
        (b"\x81\xa1a\xd4\x01\x00", "a: expected nil, bool, .*, got an extension type"),
        (b"\x81\xa1a\xc7\x00\x01", "a: expected nil, bool, .*, got an extension type"),
        (b"\x01\x02\x03", "message: expected the end of the message, got 2 more bytes"),
        (b"\x81\x01\x02", "message: expected a key that is a string, got a key of another type"),
        (b"\x82\xa1a\x01\xa1a\x02", "a: expected every key once, got this key a second time"),
        (b"\x82\xa1a\x01\xc4\x01a\x02", "a: expected every key once, got this key a second"),
        (b"\x81\xa1a\xa2\xff\xfe", "a: expected a string in UTF-8, got the byte 0xff"),
        (b"\xa3\xed\xa0\x80", "message: expected a string in UTF-8"),
        (b"\x81\xa1a\x81\xa1b\x91\xc1", r"a\.b\[0\]: expected nil"),
        (b"\x92\x81\xa1a\x01\xa5", r"\[1\]: expected 5 more bytes, got 0"),
    ],
)
def test_bytes_that_are_no_message_are_refused_with_place_and_reason(
    data: bytes, message: str
) -> None:
    with pytest.raises(WireError, match=f"^{message}"):
        decode(data)


@pytest.mark.parametrize(
    ("value", "limits", "message"),
    [
        ([1, 2], {"max_message_bytes": 2}, "message: expected at most 2 bytes in the message"),
        ({"a": [[]]}, {"max_depth": 2}, r"a\[0\]: expected at most 2 levels of nesting, got 3"),
        ([[1, 2], [3]], {"max_values": 4}, r"\[1\]: expected at most 4 values in the message"),
        ({"a": 1, "b": 2}, {"max_map_keys": 1}, "message: expected at most 1 keys in a map"),
        ({"a": "xyz"}, {"max_string_bytes": 2}, "a: expected at most 2 bytes in a string, got 3"),
        ({"abc": 1}, {"max_key_bytes": 2}, "message: expected at most 2 bytes in a string, got 3"),
        ({"a": b"12345"}, {"max_decoded_bytes": 5}, "message: expected at most 5 decoded bytes"),
        ({"a": "12345"}, {"max_decoded_bytes": 5}, "a: expected at most 5 decoded bytes, got 6"),
    ],
)
def test_every_limit_is_refused_with_place_and_numbers(
    value: object, limits: dict[str, int], message: str
) -> None:
    data = packed(value)
    assert decode(data) == value

    with pytest.raises(LimitError, match=message):
        decode(data, **limits)


@pytest.mark.parametrize("head", [b"\x91", b"\x81\xa1k"])
def test_deep_nesting_is_refused_without_recursion_whatever_the_limit(head: bytes) -> None:
    deep = head * 20_000 + b"\xc0"

    with pytest.raises(LimitError, match="levels of nesting, got 17"):
        decode(deep)
    assert decode(deep, max_depth=20_000, max_values=10**6)


def test_a_container_that_declares_much_takes_no_memory_for_it() -> None:
    length = 2**16
    # Every list claims as many elements as there are bytes left.
    bomb = b"".join(b"\xdd" + (length - 5 * level - 5).to_bytes(4, "big") for level in range(15))
    bomb += b"\xc0" * (length - len(bomb))
    account = Account(Limits(max_values=2**40))

    tracemalloc.start()
    with pytest.raises(WireError):
        decode_values(bomb, account, keep)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    # One real list of pointers, not fifteen.
    assert peak < 3 * 8 * length


def test_a_key_that_cannot_be_printed_is_escaped_and_cut_in_an_error() -> None:
    with pytest.raises(WireError) as caught:
        decode(packed({"a\n" + "b" * 200: {"c": None}})[:-1] + b"\xc1")

    assert str(caught.value).startswith(r"'a\nbbb")
    assert "\n" not in str(caught.value)
    assert "bbb....c: expected" in str(caught.value)


def test_a_fault_that_a_map_shows_on_closing_carries_the_path_of_the_map() -> None:
    def refuse_inner(values: dict[str, object], has_bytes_keys: bool) -> object:
        if "bad" in values:
            raise UnplacedError(ObservationError, expected="good", received="bad")
        return values

    data = packed({"a": [0, {"bad": 1}]})

    with pytest.raises(ObservationError) as caught:
        decode_values(data, Account(Limits()), refuse_inner)
    assert caught.value.key == "a[1]"
