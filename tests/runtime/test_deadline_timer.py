"""A timer of the kernel: readable from its instant on, and not before."""

import select
import time
from collections.abc import Iterator

import pytest

from takt.runtime.deadline_timer import DeadlineTimer
from takt.units import MILLISECOND, SECOND

HOUR = 3600 * SECOND
TIMEOUT_S = 60


@pytest.fixture
def timer() -> Iterator[DeadlineTimer]:
    made = DeadlineTimer()
    yield made
    made.close()


def is_readable(timer: DeadlineTimer, timeout_s: float = 0.0) -> bool:
    return bool(select.select([timer], [], [], timeout_s)[0])


def test_it_fires_at_its_instant_and_not_before(timer: DeadlineTimer) -> None:
    instant = time.monotonic_ns() + 3 * MILLISECOND
    timer.set(instant)

    assert is_readable(timer, TIMEOUT_S)
    assert time.monotonic_ns() >= instant


def test_an_instant_that_has_passed_fires_at_once(timer: DeadlineTimer) -> None:
    timer.set(0)

    assert is_readable(timer, TIMEOUT_S)


def test_a_later_instant_takes_the_place_of_an_earlier_one(timer: DeadlineTimer) -> None:
    timer.set(0)
    assert is_readable(timer, TIMEOUT_S)

    timer.set(time.monotonic_ns() + HOUR)

    assert not is_readable(timer)


def test_it_can_be_told_not_to_fire(timer: DeadlineTimer) -> None:
    timer.set(0)
    assert is_readable(timer, TIMEOUT_S)

    timer.set(None)

    assert not is_readable(timer)
