import pickle  # noqa: TID251 - writes what is read here
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import LimitError, WireError
from takt.wire.lerobot_pickle import (
    Global,
    LongText,
    PickleReader,
    Record,
    shown,
    shown_key,
)
from takt.wire.limits import Account, Limits, UnplacedError

KNOWN = Global("module", "Class")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.lists(inner, max_size=8).map(tuple)
        | st.dictionaries(st.text("abc", max_size=5), inner, max_size=8)
    ),
    max_leaves=30,
)


def read(data: bytes, **limits: int) -> Any:  # noqa: ANN401
    reader = PickleReader(Account(Limits(**limits)))
    value, end = reader.read(memoryview(data), {KNOWN})
    assert end == len(data)
    return value


def refused(data: bytes, **limits: int) -> UnplacedError:
    with pytest.raises(UnplacedError) as caught:
        read(data, **limits)
    return caught.value


@given(VALUES, st.integers(2, 5))
def test_what_python_pickles_is_read(value: object, protocol: int) -> None:
    assert read(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("size", [3, 300, 70_000])
def test_byte_strings_are_views_of_the_message(size: int, protocol: int) -> None:
    data = pickle.dumps(content := bytes(size), protocol)

    view = read(data)

    assert view.obj is data
    assert view == content


def test_values_that_occur_twice_stay_one_value() -> None:
    shared = ["x"]

    first, second = read(pickle.dumps([shared, shared]))

    assert first is second


def test_a_list_that_contains_itself_is_read_and_goes_no_deeper() -> None:
    endless: list[object] = []
    endless.append(endless)

    found = read(pickle.dumps(endless))

    assert found[0] is found


def test_a_class_becomes_a_record_with_arguments_and_state() -> None:
    record = read(b"\x80\x02cmodule\nClass\n)\x81}X\x01\x00\x00\x00aK\x01sb.")

    assert isinstance(record, Record)
    assert (record.function, record.arguments, record.is_new) == (KNOWN, (), True)
    assert record.state == {"a": 1}


@pytest.mark.parametrize(
    "name", ["os system", "module Class.method", "module other", "module.Class x", "builtins eval"]
)
def test_any_other_name_is_refused(name: str) -> None:
    module, _, attribute = name.partition(" ")

    error = refused(b"\x80\x02c" + f"{module}\n{attribute}\n.".encode())

    assert error.received == f"'{module}.{attribute}'"


def test_long_text_stays_undecoded() -> None:
    text = read(pickle.dumps("x" * 11), max_string_bytes=10)

    assert isinstance(text, LongText)
    assert text.utf8 == b"x" * 11


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "the next instruction"),
        (b".", "one value at the end"),
        (b"NN.", "one value at the end"),
        (b"(N.", "one value at the end"),
        (b"K", "1 more bytes"),
        (b"X\xff\xff\xff\xff", "4294967295 more bytes"),
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff", "more bytes"),
        (b"\x95\xff\x00\x00\x00\x00\x00\x00\x00N.", "a frame of 255 bytes"),
        (b"X\x01\x00\x00\x00\xff.", "text in UTF-8"),
        (b"t", "a mark before"),
        (b"N(\x85.", "a value before"),
        (b"\x94", "a value to remember"),
        (b"h\x00", "a memo place that was filled"),
        (b"NNa", "a list to append to"),
        (b"]Na(u", "a dict to set items of"),
        (b"}(NNu", "a key that is text"),
        (b"}(\x8c\x01ae", "a list to append to"),
        (b"}(\x8c\x01au", "a value for every key"),
        (b"}\x8c\x01aNs\x8c\x01aNs", "every key once"),
        (b"N)R", "a class or function"),
        (b"cmodule\nClass\nNR", "a class or function"),
        (b"NNb", "an object to give a state"),
        (b"cmodule\nClass\n)R}b}b", "one state"),
        (b"cmodule\nClass\n)RNb", "one state"),
        (b"NN\x93", "names of a module"),
        (b"c" + b"m" * 300 + b"\nx\n", "a line of at most 256 bytes"),
        (b"\x8c\x01aQ", "no persistent id"),
        (b"Pid\n", "an instruction of LeRobot's pickles"),
        (b"\x97", "an instruction of LeRobot's pickles"),
        (b"i", "an instruction of LeRobot's pickles"),
        (b"\x80\x04", "an instruction of LeRobot's pickles"),
    ],
)
def test_a_program_that_makes_no_sense_is_refused(body: bytes, expected: str) -> None:
    error = refused(b"\x80\x04" + body)

    assert error.kind is WireError
    assert expected in error.expected


@pytest.mark.parametrize("head", [b"", b"\x80", b"\x80\x01N.", b"\x80\x06N.", b"(lp0\n.", b"N."])
def test_other_protocols_are_refused(head: bytes) -> None:
    assert refused(head).kind is WireError


@pytest.mark.parametrize(
    ("body", "limits", "what"),
    [
        (b"r\xf0\xff\xff\x7f", {}, "memo places"),
        (b"\x94" * 500, {"max_values": 100}, "pickle instructions"),
        (b"(" * 20, {}, "open marks"),
        (b"\x8a\x11" + bytes(17), {}, "bytes in an integer"),
        (b"\x8c\x05abcde\x8c\x06abcdef", {"max_decoded_bytes": 10}, "decoded bytes"),
        (b"}(" + b"".join(b"\x8c\x01%cN" % (65 + n) for n in range(9)) + b"u", {}, "keys"),
        (b"}\x8c\x0b" + b"k" * 11 + b"Ns", {"max_key_bytes": 10}, "characters in a key"),
    ],
)
def test_a_program_beyond_the_limits_is_refused(
    body: bytes, limits: dict[str, int], what: str
) -> None:
    error = refused(b"\x80\x04N" + body, **{"max_map_keys": 8, **limits})

    assert error.kind is LimitError
    assert what in error.expected


def test_the_instructions_of_all_pickles_of_a_message_count_together() -> None:
    reader = PickleReader(Account(Limits(max_values=2)))
    data = memoryview(b"\x80\x04NNNN\x87\x86.")
    reader.read(data, ())

    with pytest.raises(UnplacedError, match="at most 8 pickle instructions"):
        reader.read(data, ())


def test_a_pickle_may_begin_within_the_message() -> None:
    reader = PickleReader(Account(Limits()))

    assert reader.read(memoryview(b"??\x80\x04K\x07.rest"), (), start=2) == (7, 7)


def test_tuples_nested_as_deep_as_the_limits_allow_are_read_and_dropped() -> None:
    assert read(b"\x80\x04N" + b"\x85" * 16_000 + b".") is not None


def test_an_error_repeats_few_and_printable_characters() -> None:
    assert len(shown("\x1b" * 1000)) < 70
    assert shown(Record(KNOWN)) == "Class"
    assert shown(None) == "nothing"
    assert shown_key("arm.pos") == "arm.pos"
    assert shown_key("a\nb\x1b[2J") == r"'a\nb\x1b[2J'"
