"""The manual clock shows what it was told and never goes back."""

import pytest

from takt.errors import UsageError
from takt.testing import ManualClock


def test_a_clock_shows_the_same_instant_until_it_is_advanced() -> None:
    clock = ManualClock(5)

    assert [clock.now(), clock.now()] == [5, 5]
    assert clock.advance(3) == 8
    assert clock.now() == 8


def test_a_clock_starts_at_zero_and_may_be_advanced_by_nothing() -> None:
    assert ManualClock().advance(0) == 0


def test_a_clock_refuses_to_go_back_and_keeps_its_instant() -> None:
    clock = ManualClock(5)

    with pytest.raises(UsageError, match="duration must not be negative, got -1 ns"):
        clock.advance(-1)

    assert clock.now() == 5
