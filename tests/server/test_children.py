"""Backoff of children; their processes are tested in tests/integration/test_supervisor.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from takt.server.children import Backoff
from takt.units import SECOND

SHORT = SECOND
LONG = 60 * SECOND


def test_the_first_restart_is_immediate() -> None:
    assert Backoff().after_death(SHORT) == 0


def test_each_further_death_in_a_row_doubles_the_wait() -> None:
    backoff = Backoff(base=SECOND)

    waits = [backoff.after_death(SHORT) for _ in range(5)]

    assert waits == [0, SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND]


def test_a_child_that_lived_long_begins_anew() -> None:
    backoff = Backoff(base=SECOND)
    for _ in range(4):
        backoff.after_death(SHORT)

    assert backoff.after_death(LONG) == 0
    assert backoff.after_death(SHORT) == SECOND


@given(st.lists(st.integers(0, 100 * SECOND), max_size=200))
def test_no_wait_is_longer_than_the_cap(lives: list[int]) -> None:
    backoff = Backoff(most=30 * SECOND)

    assert all(0 <= backoff.after_death(lived) <= 30 * SECOND for lived in lives)
