"""The constants in use are those the fit finds."""

import pytest

from takt.errors import ConfigError
from takt.hardware.calibration import CALIBRATION, RANGES, STACKS, STRETCH, stack_named
from takt.hardware.fitting import constants_of, fit, halves, ranges


@pytest.mark.slow
def test_a_fit_to_the_fitted_half_finds_the_constants_in_use() -> None:
    fitted, _ = halves()

    assert constants_of(fit(fitted)) == pytest.approx(constants_of(CALIBRATION), rel=0.02)


@pytest.mark.slow
def test_leaving_out_one_source_moves_the_constants_within_their_stated_ranges() -> None:
    found = ranges()

    for name, span in RANGES.items():
        assert found[name] == pytest.approx(span, rel=0.02), name


def test_every_constant_lies_in_its_range() -> None:
    for name, value in constants_of(CALIBRATION).items():
        low, high = RANGES[name]
        assert low <= value <= high


def test_every_stack_has_a_launch_time() -> None:
    assert CALIBRATION.launch_us.keys() == STACKS.keys()


def test_a_smaller_share_never_stretches_less() -> None:
    assert list(STRETCH) == sorted(STRETCH)
    assert [slowdown for _, slowdown in STRETCH] == sorted(
        (slowdown for _, slowdown in STRETCH), reverse=True
    )
    assert STRETCH[-1] == (1.0, 1.0)


def test_an_unknown_stack_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no stack 'tvm'; known: eager, compiled, graph"):
        stack_named("tvm")
