from hypothesis import given
from hypothesis import strategies as st

from takt.client.network_time import NetworkTime
from takt.units import ms


def estimate_of(*times: int) -> int:
    network = NetworkTime()
    for time in times:
        network.add(time)
    return network.estimate


def test_nothing_is_assumed_before_the_first_answer() -> None:
    assert estimate_of() == 0


def test_the_first_answer_counts_at_once() -> None:
    assert estimate_of(ms(3)) == ms(3)


def test_one_outlier_does_no_harm() -> None:
    assert estimate_of(ms(3), ms(900), ms(4)) == ms(4)


def test_a_network_that_became_slow_is_believed() -> None:
    assert estimate_of(*[ms(3)] * 20, ms(40), ms(41)) == ms(40)


def test_a_network_that_became_fast_is_believed_after_a_while() -> None:
    assert estimate_of(*[ms(40)] * 20, *[ms(3)] * 8) == ms(3)


@given(st.lists(st.integers(0, 10**9), min_size=2))
def test_all_but_one_of_the_last_times_were_no_longer(times: list[int]) -> None:
    recent = times[-8:]

    assert sum(time > estimate_of(*times) for time in recent) <= 1
