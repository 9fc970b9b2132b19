"""What is shown is complete, consistent and judged by the half that was held back."""

import pytest

from takt.errors import ConfigError
from takt.hardware.fitting import halves
from takt.hardware.published import PUBLISHED
from takt.hardware.report import (
    SHOWN_ARCHITECTURES,
    SHOWN_DEVICES,
    SHOWN_SIZES,
    Comparison,
    accuracy,
    by_architecture,
    by_stack,
    comparisons,
    stage_times,
    without_eager,
    worst,
)


def test_every_published_figure_is_compared_and_knows_its_half() -> None:
    compared = comparisons()
    fitted, _ = halves()

    assert [one.published for one in compared] == list(PUBLISHED)
    assert tuple(one.published for one in compared if one.fitted) == fitted


def test_the_reported_half_is_predicted_within_a_quarter_in_the_median() -> None:
    reported = [one.error for one in comparisons() if not one.fitted]

    assert accuracy(reported).median < 0.2


def test_filters_keep_the_half_of_a_figure() -> None:
    everything = {one.published: one for one in comparisons()}

    some = comparisons(devices=["h100"], architectures=["groot-n1.7"])

    assert some
    assert all(one == everything[one.published] for one in some)
    assert {(one.published.device, one.published.architecture) for one in some} == {
        ("h100", "groot-n1.7")
    }


def test_times_are_shown_for_every_device_model_and_layout_and_grow_along_both() -> None:
    rows = stage_times()

    assert {row.device for row in rows} == set(SHOWN_DEVICES)
    assert {row.architecture for row in rows} == set(SHOWN_ARCHITECTURES)
    for row in rows:
        assert len(row.prefix_ms) == len(row.denoise_ms) == len(SHOWN_SIZES)
        assert list(row.prefix_ms) == sorted(row.prefix_ms)
        assert list(row.denoise_ms) == sorted(row.denoise_ms)


def test_half_as_long_and_twice_as_long_are_equally_bad() -> None:
    point = PUBLISHED[0]
    half, twice = (
        Comparison(point, factor * point.milliseconds, factor - 1, fitted=False)
        for factor in (0.5, 2.0)
    )

    assert half.badness == pytest.approx(twice.badness)


def test_the_worst_come_first() -> None:
    ranked = worst(comparisons(), len(PUBLISHED))

    assert [one.badness for one in ranked] == sorted((one.badness for one in ranked), reverse=True)


def test_accuracy_counts_what_is_close_and_where_nine_in_ten_end() -> None:
    one = accuracy([0.1, -0.2, 0.3, -0.4, 0.5, -0.05, 0.15, 0.25, -0.35, 0.9])

    assert one.figures == 10
    assert one.median == pytest.approx(0.275)
    assert one.close == 0.5
    assert one.worst_decile == 0.5


def test_groups_cover_every_figure_once() -> None:
    compared = comparisons()

    assert sum(group.figures for group in by_stack(compared).values()) == len(compared)
    assert sum(group.figures for group in by_architecture(compared).values()) == len(compared)


def test_a_figure_with_one_eager_stage_counts_as_eager() -> None:
    assert all(
        "eager" not in (one.published.prefix, one.published.denoise)
        for one in without_eager(comparisons())
    )


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(ConfigError, match="no published latency"):
        accuracy([])


def test_filters_refuse_unknown_names() -> None:
    with pytest.raises(ConfigError, match="no device 'tpu'"):
        comparisons(devices=["tpu"])
    with pytest.raises(ConfigError, match="no architecture 'pi9'"):
        comparisons(architectures=["pi9"])
