"""The best is picked on one half of the rounds and compared on the other."""

import pytest
from benchmarks.truth._pairs import bootstrap_interval, compare, halves, paired_ratios
from hypothesis import given
from hypothesis import strategies as st


def scores(*by_round: float) -> dict[tuple[int, int], float]:
    return {(number, 8): figure for number, figure in enumerate(by_round, 1)}


def test_every_other_round_picks_and_the_others_compare() -> None:
    assert halves([4, 1, 3, 2, 2]) == ([1, 3], [2, 4])


@given(st.lists(st.integers(0, 50)))
def test_halves_share_no_round_and_lose_none(rounds: list[int]) -> None:
    pick, compared = halves(rounds)

    assert sorted(pick + compared) == sorted(set(rounds))


def test_ratios_are_taken_within_a_round_and_a_population() -> None:
    ours = {(1, 8): 5.0, (2, 8): 6.0, (2, 9): 8.0}
    theirs = {(1, 8): 1.0, (2, 8): 3.0, (2, 9): 4.0, (2, 10): 9.0}

    assert paired_ratios(ours, theirs, [2]) == [2.0, 2.0]


def test_a_pair_in_which_the_other_did_nothing_is_no_ratio() -> None:
    assert paired_ratios(scores(1.0), scores(0.0), [1]) == []


def test_the_interval_of_equal_values_is_that_value() -> None:
    assert bootstrap_interval([0.9, 0.9, 0.9]) == (0.9, 0.9)


def test_the_interval_is_the_same_every_time_and_holds_the_median() -> None:
    values = [0.8, 0.9, 1.0, 1.1, 1.3]
    low, high = bootstrap_interval(values)

    assert (low, high) == bootstrap_interval(values)
    assert 0.8 <= low <= 1.0 <= high <= 1.3


def test_luck_on_the_half_that_picks_does_not_count() -> None:
    lucky, steady = scores(20.0, 10.0, 20.0, 10.0), scores(12.0, 12.0, 12.0, 12.0)

    compared = compare({"auto": steady, "flowing": lucky}, "auto")

    assert compared is not None
    assert (compared.best, compared.ratio, compared.pairs) == ("flowing", 1.2, 2)
    assert compared.holds


@pytest.mark.parametrize(("figure", "holds"), [(9.6, True), (9.4, False)])
def test_a_choice_may_be_a_twentieth_behind_the_best(figure: float, holds: bool) -> None:
    best, choice = scores(10.0, 10.0), scores(figure, figure)

    compared = compare({"auto": choice, "lockstep": best}, "auto")

    assert compared is not None
    assert compared.holds is holds


def test_the_best_one_holds_whatever_the_other_half_says() -> None:
    compared = compare({"auto": scores(9.0, 1.0), "lockstep": scores(8.0, 8.0)}, "auto")

    assert compared is not None
    assert compared.choice == compared.best
    assert compared.holds


def test_rounds_that_somebody_missed_are_left_out() -> None:
    assert compare({"auto": scores(9.0, 9.0), "lockstep": scores(8.0)}, "auto") is None
