"""The published figures are well formed and in an order nobody can bend."""

import pytest

from takt.hardware.architectures import architecture_named
from takt.hardware.calibration import stack_named
from takt.hardware.devices import device_named
from takt.hardware.published import LEFT_OUT, PUBLISHED, Published


@pytest.mark.parametrize("point", PUBLISHED, ids=lambda point: f"{point.source} {point.device}")
def test_every_figure_names_things_that_exist(point: Published) -> None:
    architecture_named(point.architecture)
    device_named(point.device)
    stacks = [stack for stack in (point.prefix, point.denoise) if stack]

    assert [stack_named(stack).name for stack in stacks]
    assert point.source
    assert point.milliseconds > 0
    assert point.size >= 1
    assert point.layout.cameras >= 1


def test_no_figure_is_counted_twice() -> None:
    assert len(set(PUBLISHED)) == len(PUBLISHED)


def test_the_figures_are_sorted() -> None:
    assert list(PUBLISHED) == sorted(PUBLISHED)


def test_every_figure_left_out_has_a_reason() -> None:
    assert all(what and why for what, why in LEFT_OUT)


def test_a_figure_says_in_words_what_ran_and_what_it_covers() -> None:
    mixed = next(point for point in PUBLISHED if point.prefix != point.denoise and point.denoise)
    head = next(point for point in PUBLISHED if not point.prefix)

    assert mixed._replace(prefix="eager", denoise="graph").stack == "eager + graph"
    assert mixed._replace(prefix="eager", denoise="graph").covers == "both"
    assert head.covers == "denoise"
    assert head._replace(prefix="graph", denoise="").covers == "prefix"
