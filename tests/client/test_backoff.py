import pytest

from takt.client.backoff import Backoff
from takt.errors import ConfigError
from takt.units import ms, seconds


def test_waits_double_up_to_the_cap() -> None:
    backoff = Backoff(base=ms(50), most=ms(300), random=lambda: 0.0)

    waits = [backoff.after_failure() for _ in range(5)]

    assert waits == [ms(50), ms(100), ms(200), ms(300), ms(300)]


def test_a_wait_is_drawn_from_its_upper_half() -> None:
    luck = iter([0.0, 0.5, 0.999_999])
    backoff = Backoff(base=ms(100), most=ms(100), random=lambda: next(luck))

    waits = [backoff.after_failure() for _ in range(3)]

    assert waits[:2] == [ms(100), ms(75)]
    assert ms(50) <= waits[2] < ms(51)


def test_a_success_begins_anew() -> None:
    backoff = Backoff(base=ms(50), most=seconds(5), random=lambda: 0.0)
    backoff.after_failure()
    backoff.after_failure()

    backoff.succeeded()

    assert backoff.failures == 0
    assert backoff.after_failure() == ms(50)


def test_a_day_of_failures_keeps_to_the_cap() -> None:
    backoff = Backoff(base=1, most=seconds(5), random=lambda: 0.0)

    waits = [backoff.after_failure() for _ in range(100_000)]

    assert max(waits) == waits[-1] == 2**32
    assert backoff.failures == 100_000


def test_two_robots_draw_differently() -> None:
    waits = {Backoff(base=seconds(1), most=seconds(1)).after_failure() for _ in range(8)}

    assert len(waits) > 1


@pytest.mark.parametrize(("base", "most"), [(0, 1), (-1, 1), (2, 1)])
def test_a_wait_that_cannot_be_is_refused(base: int, most: int) -> None:
    with pytest.raises(ConfigError, match="base"):
        Backoff(base=base, most=most)
