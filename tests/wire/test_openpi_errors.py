import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import LimitError, ObservationError, RefusedError, WireError
from takt.wire.openpi_errors import encode_error, error_in_map, error_in_text
from takt.wire.openpi_options import ErrorForm

ERRORS = [
    RefusedError("the answer came 80 ms too late", code="expired"),
    RefusedError("no replica", code="unknown_model"),
    WireError("message: expected a map, got a list"),
    LimitError("message: expected at most 16 levels of nesting, got 17"),
    ObservationError("observation/state", expected="8 numbers", received="7"),
]


def as_map(error: RefusedError) -> RefusedError | None:
    encoded = encode_error(error, ErrorForm.MAP)
    assert isinstance(encoded, bytes)
    return error_in_map(msgpack.unpackb(encoded))


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_survives_the_wire_as_a_map_with_its_class_and_parts(error: RefusedError) -> None:
    again = as_map(error)

    assert type(again) is type(error)
    assert again is not None
    assert (str(again), again.code) == (str(error), error.code)
    if isinstance(error, ObservationError):
        assert vars(again) == vars(error)


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_survives_the_wire_as_text_with_its_code(error: RefusedError) -> None:
    text = encode_error(error, ErrorForm.TEXT)
    assert isinstance(text, str)

    again = error_in_text(text)

    assert text == f"{error.code}: {error}"
    assert (str(again), again.code) == (str(error), error.code)


def test_the_map_has_the_documented_shape() -> None:
    encoded = encode_error(ERRORS[-1], ErrorForm.MAP)

    assert msgpack.unpackb(encoded) == {
        "error": {
            "code": "observation",
            "message": "observation/state: expected 8 numbers, got 7",
            "key": "observation/state",
            "expected": "8 numbers",
            "received": "7",
        }
    }


@given(st.text(max_size=3000))
def test_the_text_for_a_robot_is_one_printable_line_of_bounded_length(said: str) -> None:
    text = encode_error(ObservationError(said, expected="a", received=said), ErrorForm.TEXT)

    assert isinstance(text, str)
    assert text.isprintable()
    assert len(text) < 1100
    assert text.encode()


@given(st.text(max_size=3000))
def test_the_map_for_a_robot_is_printable_and_of_bounded_length(said: str) -> None:
    encoded = encode_error(ObservationError(said, expected=said, received=said), ErrorForm.MAP)

    content = msgpack.unpackb(encoded)["error"]
    assert all(part.isprintable() and len(part) < 1010 for part in content.values())


def test_a_traceback_of_a_stock_server_is_kept_whole() -> None:
    text = "Traceback (most recent call last):\n  File ...\nValueError: boom"

    error = error_in_text(text)

    assert (str(error), error.code) == (text, "failed")


@pytest.mark.parametrize(
    "values",
    [
        {"actions": 1},
        {"error": "text"},
        {"error": {"code": "expired"}},
        {"error": {"message": "text"}},
        {"error": {"code": 3, "message": "text"}},
    ],
)
def test_a_map_that_is_no_error_is_not_taken_for_one(values: dict[str, object]) -> None:
    assert error_in_map(values) is None
