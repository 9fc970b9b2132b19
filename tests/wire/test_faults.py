"""What a stranger sent is repeated in an error, briefly and so that a terminal takes it."""

import pytest

from takt.errors import ObservationError
from takt.wire.faults import MAX_SHOWN, refused, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "True"),
        (2.5, "2.5"),
        ("gif\x1b[2J", r"'gif\x1b[2J'"),
        (memoryview(b"abc"), "3 bytes"),
        ([1, 2], "list"),
        ({}, "dict"),
    ],
)
def test_a_value_is_shown_as_what_it_is(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("value", ["x" * 1000, 10**1000])
def test_a_long_value_is_cut(value: object) -> None:
    assert len(shown(value)) == MAX_SHOWN + len("...")
    assert shown(value).endswith("...")


def test_an_observation_at_fault_is_told_once_its_place_is_known() -> None:
    error = refused("a number", "text").at("observation/state")

    assert isinstance(error, ObservationError)
    assert str(error) == "observation/state: expected a number, got text"
