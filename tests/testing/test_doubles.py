"""The doubles are there by their names, and load what they need when they are asked for."""

import pytest

import takt.testing


@pytest.mark.parametrize("name", takt.testing.__all__)
def test_every_double_is_there_by_its_name(name: str) -> None:
    assert getattr(takt.testing, name).__name__ == name


def test_a_name_that_is_no_double_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"'takt\.testing' has no attribute 'Nothing'"):
        _ = takt.testing.Nothing
