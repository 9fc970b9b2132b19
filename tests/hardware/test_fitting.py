"""The fit finds constants that are there, on a half nobody chose."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from takt.hardware.calibration import CALIBRATION
from takt.hardware.fitting import (
    STARTS,
    constants_of,
    error_of,
    fit,
    halves,
    spread,
    unseen_errors,
    without_each_source,
)
from takt.hardware.published import PUBLISHED, Published
from takt.hardware.roofline import predicted_ms


@settings(max_examples=20)
@given(st.permutations(PUBLISHED))
def test_the_halves_do_not_depend_on_the_order_of_the_figures(points: list[Published]) -> None:
    assert halves(points) == halves()


def test_the_halves_share_nothing_and_leave_nothing_out() -> None:
    fitted, reported = halves()

    assert sorted([*fitted, *reported]) == list(PUBLISHED)
    assert not set(fitted) & set(reported)
    assert 0 <= len(fitted) - len(reported) <= 1


@pytest.mark.slow
def test_a_fit_finds_the_constants_that_made_the_figures() -> None:
    truth = replace(CALIBRATION, feed_tflops=4.0, bandwidth=0.8, prefix_layer=1.8)
    made = [point._replace(milliseconds=predicted_ms(point, truth)) for point in PUBLISHED]

    found = fit(made)

    assert constants_of(found) == pytest.approx(constants_of(truth), rel=0.03)


@pytest.mark.slow
def test_both_starts_end_at_the_same_constants() -> None:
    fitted, _ = halves()

    one, other = (constants_of(fit(fitted, [start])) for start in STARTS)

    assert one == pytest.approx(other, rel=0.01)


def test_a_constant_no_figure_depends_on_keeps_its_start() -> None:
    start = STARTS[0]
    graphs = [point for point in PUBLISHED if point.prefix == point.denoise == "graph"]

    found = fit(graphs, [start])

    assert found.launch_us == {**start.launch_us, "graph": found.launch_us["graph"]}
    assert found.launch_us["graph"] != start.launch_us["graph"]


def test_an_error_is_what_the_prediction_is_over_the_figure() -> None:
    point = PUBLISHED[0]
    predicted = predicted_ms(point)

    assert error_of(point._replace(milliseconds=predicted / 1.25)) == pytest.approx(0.25)


@pytest.mark.slow
def test_every_figure_is_predicted_once_by_constants_that_never_saw_its_source() -> None:
    assert sorted(point for point, _ in unseen_errors()) == list(PUBLISHED)
    for figures, _ in without_each_source():
        assert len({point.source for point in figures}) == 1


def test_the_spread_of_a_case_is_its_highest_figure_over_its_lowest() -> None:
    point = PUBLISHED[0]
    again = [point._replace(milliseconds=value, source=f"s{value}") for value in (10, 30, 20)]

    assert [ratio for _, ratio in spread([*again, PUBLISHED[-1]])] == [3.0]
