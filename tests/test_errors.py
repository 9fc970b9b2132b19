"""Errors say who must act, and carry what a program needs to react."""

import pytest

from takt import errors
from takt.errors import LimitError, ObservationError, RefusedError, TaktError, WireError


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_a_takt_error(name: str) -> None:
    assert issubclass(getattr(errors, name), TaktError)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RefusedError("no"), "failed"),
        (RefusedError("no", code="busy"), "busy"),
        (WireError("no"), "wire"),
        (LimitError("no"), "limit"),
        (ObservationError("state", expected="8 numbers", received="7"), "observation"),
    ],
)
def test_every_refusal_has_a_code(error: RefusedError, code: str) -> None:
    assert isinstance(error, RefusedError)
    assert error.code == code


def test_the_code_of_one_refusal_leaves_the_next_alone() -> None:
    RefusedError("full", code="busy")

    assert RefusedError("other").code == "failed"


def test_a_message_beyond_the_limits_is_a_fault_of_the_wire() -> None:
    assert issubclass(LimitError, WireError)


def test_an_observation_error_names_key_expectation_and_what_came() -> None:
    error = ObservationError("state", expected="float32 (8,)", received="float64 (7,)")

    assert str(error) == "state: expected float32 (8,), got float64 (7,)"
    assert (error.key, error.expected, error.received) == ("state", "float32 (8,)", "float64 (7,)")
