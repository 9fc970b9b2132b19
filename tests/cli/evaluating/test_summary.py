import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.cli.evaluating.summary import sentence, summary_of, wilson_interval
from takt.client.rollout import EpisodeResult
from takt.errors import UsageError


def result(index: int, *, is_solved: bool, steps: int = 50) -> EpisodeResult:
    return EpisodeResult(index=index, is_solved=is_solved, steps=steps, chunks=7)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    # Computed with scipy.stats.binomtest(...).proportion_ci(method="wilson").
    [(20, 25, 0.6087, 0.9114), (25, 25, 0.8668, 1.0), (0, 25, 0.0, 0.1332), (1, 2, 0.0945, 0.9055)],
)
def test_the_interval_is_wilsons(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 500), st.data())
def test_the_interval_holds_the_rate_and_stays_between_0_and_1(
    trials: int, data: st.DataObject
) -> None:
    successes = data.draw(st.integers(0, trials))

    low, high = wilson_interval(successes, trials)

    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 2)])
def test_impossible_counts_are_refused(successes: int, trials: int) -> None:
    with pytest.raises(UsageError):
        wilson_interval(successes, trials)


def test_a_summary_counts_and_names_the_unsolved() -> None:
    results = [
        result(0, is_solved=True, steps=40),
        result(1, is_solved=False, steps=200),
        result(2, is_solved=True, steps=60),
        result(3, is_solved=True, steps=90),
    ]

    summary = summary_of(results)

    assert (summary["episodes"], summary["solved"], summary["success"]) == (4, 3, 0.75)
    assert summary["median_steps_of_solved"] == 60
    assert summary["unsolved"] == [1]
    assert summary["chunks"] == 28
    assert sentence(summary).startswith("solved 3 of 4: 75% (95 % interval 30% to 95%)")


def test_without_a_solved_episode_there_is_no_median() -> None:
    summary = summary_of([result(0, is_solved=False)])

    assert summary["median_steps_of_solved"] is None
    assert "median" not in sentence(summary)
