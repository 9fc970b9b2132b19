"""A lasting change of a fifth is always noticed, and nothing that does not last is."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.server.population import Population, PopulationWatch, Verdict
from takt.units import SECOND

DWELL = 60 * SECOND
PATIENCE = DWELL // 4
EVERY = 5 * SECOND

populations = st.builds(
    lambda pi0, act: Population({"pi0": pi0, "act": act}), st.integers(0, 30), st.integers(0, 30)
)
series = st.lists(st.tuples(populations, st.integers(1, 15)), min_size=1, max_size=8)
"""Populations, and how many looks each of them lasts."""


def of(**robots: int) -> Population:
    return Population(robots)


@pytest.mark.parametrize(
    ("now", "chosen_for", "differs"),
    [
        (of(pi0=10), of(pi0=10), False),
        (of(pi0=11), of(pi0=10), False),
        (of(pi0=12), of(pi0=10), True),
        (of(pi0=9), of(pi0=10), False),
        (of(pi0=8), of(pi0=10), True),
        (of(pi0=6, act=4), of(pi0=5, act=5), False),
        (of(pi0=7, act=3), of(pi0=5, act=5), True),
        (of(act=10), of(pi0=10), True),
        (of(pi0=8, act=2), of(pi0=10), True),
        (of(pi0=9, act=1), of(pi0=10), False),
        (of(), of(pi0=10), True),
        (of(), of(pi0=0), False),
    ],
)
def test_a_fifth_more_fewer_or_elsewhere_is_a_difference(
    now: Population, chosen_for: Population, differs: bool
) -> None:
    assert now.differs_from(chosen_for) is differs


@given(population=populations, factor=st.integers(2, 9))
def test_proportions_are_those_of_robots_whatever_their_number(
    population: Population, factor: int
) -> None:
    larger = Population({model: count * factor for model, count in population.robots.items()})

    assert not population.differs_from(population)
    assert larger.differs_from(population) is (population.total > 0)


def test_a_population_says_what_it_is() -> None:
    assert str(of(pi0=8, act=4, echo=0)) == "12 robots (pi0 8, act 4)"
    assert str(of()) == "0 robots"


def looks(series: list[tuple[Population, int]]) -> list[tuple[Population, int]]:
    """What is seen, and when."""
    flat = itertools.chain.from_iterable([population] * times for population, times in series)
    return [(population, EVERY * number) for number, population in enumerate(flat)]


@given(series=series)
def test_two_choices_are_never_closer_than_the_dwell(series: list[tuple[Population, int]]) -> None:
    watch, chosen = PopulationWatch(of(pi0=10), DWELL), list[int]()

    for population, now in looks(series):
        if watch.see(population, now) is Verdict.CHOOSE:
            watch.has_chosen()
            chosen.append(now)

    assert all(later - earlier >= DWELL for earlier, later in itertools.pairwise([0, *chosen]))


@given(series=series, last=populations, is_slow=st.booleans())
def test_a_lasting_change_is_always_noticed(
    series: list[tuple[Population, int]], last: Population, is_slow: bool
) -> None:
    """Whatever was before, and whether or not a choice is being made when it comes."""
    watch = PopulationWatch(of(pi0=10), DWELL)

    for population, now in looks([*series, (last, 2 * DWELL // EVERY)]):
        if watch.see(population, now) is Verdict.CHOOSE and not is_slow:
            watch.has_chosen()
    watch.has_chosen()

    assert not last.total or not last.differs_from(watch.chosen_for)


@given(series=series)
def test_nothing_is_chosen_for_what_does_not_differ_or_for_nobody(
    series: list[tuple[Population, int]],
) -> None:
    watch = PopulationWatch(of(pi0=10), DWELL)

    for population, now in looks(series):
        before = watch.chosen_for
        if watch.see(population, now) is Verdict.CHOOSE:
            assert population.total
            assert population.differs_from(before)
            watch.has_chosen()


def watch_that_chooses() -> PopulationWatch:
    watch = PopulationWatch(of(pi0=10), DWELL)
    assert watch.see(of(pi0=20), 0) is Verdict.KEEP
    assert watch.see(of(pi0=20), DWELL - 1) is Verdict.KEEP
    assert watch.see(of(pi0=21), DWELL) is Verdict.CHOOSE
    return watch


def test_a_choice_is_given_up_when_the_population_changes_again() -> None:
    watch = watch_that_chooses()

    assert watch.see(of(pi0=22), DWELL + 1) is Verdict.KEEP
    assert watch.see(of(pi0=30), DWELL + 2) is Verdict.KEEP
    assert watch.see(of(pi0=30), DWELL + 1 + PATIENCE) is Verdict.KEEP
    assert watch.see(of(pi0=31), DWELL + 2 + PATIENCE) is Verdict.CANCEL
    assert watch.see(of(pi0=31), DWELL + 3 + PATIENCE) is Verdict.KEEP
    assert watch.see(of(pi0=31), 2 * DWELL + 3 + PATIENCE) is Verdict.CHOOSE


def test_a_choice_is_given_up_when_the_population_is_as_before() -> None:
    watch = watch_that_chooses()

    assert watch.see(of(pi0=11), DWELL + 1) is Verdict.KEEP
    assert watch.see(of(pi0=11), DWELL + 1 + PATIENCE) is Verdict.CANCEL
    assert watch.chosen_for == of(pi0=10)


def test_robots_between_two_episodes_do_not_end_a_choice() -> None:
    watch = watch_that_chooses()

    for turn in range(20):
        now = DWELL + turn * PATIENCE
        assert watch.see(of(pi0=12), now + 1) is Verdict.KEEP
        assert watch.see(of(pi0=20), now + PATIENCE - 1) is Verdict.KEEP


def test_a_choice_goes_on_while_robots_pause() -> None:
    watch = watch_that_chooses()

    assert watch.see(of(), DWELL + 1) is Verdict.KEEP
    watch.has_chosen()
    assert watch.chosen_for == of(pi0=21)


def test_a_change_does_not_last_over_a_pause() -> None:
    watch = PopulationWatch(of(pi0=10), DWELL)
    watch.see(of(pi0=20), 0)
    watch.see(of(), 1)

    assert watch.see(of(pi0=20), DWELL) is Verdict.KEEP
    assert watch.see(of(pi0=20), 2 * DWELL) is Verdict.CHOOSE


def test_what_was_chosen_is_kept_until_the_next_change() -> None:
    watch = watch_that_chooses()
    watch.has_chosen()

    assert watch.chosen_for == of(pi0=21)
    assert watch.see(of(pi0=20), 9 * DWELL) is Verdict.KEEP
    assert watch.see(of(pi0=10), 10 * DWELL) is Verdict.KEEP
    assert watch.see(of(pi0=10), 11 * DWELL) is Verdict.CHOOSE
