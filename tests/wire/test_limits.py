from dataclasses import fields

import pytest

from takt.errors import ConfigError, LimitError, ObservationError, WireError
from takt.wire.limits import Account, Limits, UnplacedError


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_a_limit_below_one_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        Limits(**{name: 0})


def test_an_account_adds_up_the_values_of_a_message() -> None:
    account = Account(Limits(max_values=10))
    account.charge_values(10)

    with pytest.raises(UnplacedError, match="at most 10 values in the message, got 11"):
        account.charge_values(1)


def test_an_account_adds_up_arrays_and_strings_into_one_sum_of_bytes() -> None:
    account = Account(Limits(max_decoded_bytes=100))
    account.charge_array(15, 60)
    account.charge_bytes(40)

    with pytest.raises(UnplacedError, match="at most 100 decoded bytes, got 101"):
        account.charge_bytes(1)


def test_an_account_counts_arrays() -> None:
    account = Account(Limits(max_arrays=1))
    account.charge_array(0, 0)

    with pytest.raises(UnplacedError, match="at most 1 arrays and numpy scalars, got 2"):
        account.charge_array(0, 0)


def test_an_account_adds_up_the_elements_of_all_arrays() -> None:
    account = Account(Limits(max_elements=9))
    account.charge_array(5, 5)

    with pytest.raises(UnplacedError, match="at most 9 array elements in the message, got 10"):
        account.charge_array(5, 5)


def test_an_error_learns_its_place_and_keeps_its_class() -> None:
    limit = UnplacedError(LimitError, expected="at most 8 dimensions", received="9").at("image")
    wire = UnplacedError(WireError, expected="a value", received="the end").at("message")

    assert (type(limit), str(limit)) == (
        LimitError,
        "image: expected at most 8 dimensions, got 9",
    )
    assert (type(wire), str(wire)) == (WireError, "message: expected a value, got the end")


def test_an_error_about_an_observation_carries_its_parts() -> None:
    error = UnplacedError(ObservationError, expected="bytes", received="str").at("state")

    assert isinstance(error, ObservationError)
    assert (error.key, error.expected, error.received) == ("state", "bytes", "str")
