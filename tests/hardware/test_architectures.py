"""Dimensions reproduce the published operation and byte counts, and layouts are well ordered."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.core.request import Stage
from takt.errors import ConfigError
from takt.hardware.architectures import (
    ARCHITECTURES,
    Layout,
    Tower,
    architecture_named,
    known_architectures,
)

names = st.sampled_from(known_architectures())
layouts = st.builds(Layout, st.integers(1, 4), st.integers(0, 300))


class Row(NamedTuple):
    """One row of the source's table of prefixes."""

    name: str
    layout: Layout
    tokens: int
    tflop: float
    weights_gb: float
    cache_mb: float


@pytest.mark.parametrize(
    "row",
    [
        Row("pi0", Layout(3, 48), 816, 3.99, 4.79, 15.0),
        Row("pi0", Layout(2, 48), 560, 2.70, 4.79, 10.3),
        Row("pi05", Layout(3, 200), 968, 4.63, 4.79, 17.8),
        Row("smolvla", Layout(2, 48), 177, 0.48, 0.48, 3.6),
        Row("groot-n1.5", Layout(1, 32), 288, 0.69, 2.43, 1.2),
        Row("groot-n1.7", Layout(1, 48), 112, 0.39, 2.62, 0.46),
        Row("xr0", Layout(2, 48), 176, 1.62, 7.87, 26.0),
    ],
    ids=lambda row: f"{row.name}-{row.tokens}",
)
def test_the_prefix_has_the_operations_and_bytes_of_the_source(row: Row) -> None:
    architecture = architecture_named(row.name)
    cost = architecture.cost(Stage.PREFIX, row.layout)

    assert architecture.prefix_tokens(row.layout) == row.tokens
    assert cost.flops / 1e12 == pytest.approx(row.tflop, abs=0.006)
    assert 2 * cost.weights / 1e9 == pytest.approx(row.weights_gb, abs=0.006)
    assert architecture.cache_bytes(row.layout) / 1e6 == pytest.approx(row.cache_mb, rel=0.02)


@pytest.mark.parametrize(
    ("name", "tflop", "weights_gb"),
    [
        ("pi0", 0.383, 6.23),
        ("pi05", 0.386, 6.23),
        ("smolvla", 0.107, 2.01),
        ("groot-n1.5", 0.184, 3.62),
        ("groot-n1.7", 0.302, 7.25),
        ("xr0", 0.10, 3.0),
    ],
)
def test_the_denoise_loop_reads_its_weights_at_every_step(
    name: str, tflop: float, weights_gb: float
) -> None:
    architecture = architecture_named(name)
    cost = architecture.cost(Stage.DENOISE, architecture.layouts[-1])

    assert cost.flops / 1e12 == pytest.approx(tflop, rel=0.03)
    assert 2 * cost.weights / 1e9 == pytest.approx(weights_gb, rel=0.01)
    assert cost.weights == architecture.steps * architecture.expert.weights


@given(names, layouts, layouts)
def test_a_row_that_fits_in_another_never_costs_more(name: str, one: Layout, other: Layout) -> None:
    architecture = architecture_named(name)

    for stage in Stage:
        costs = architecture.cost(stage, one), architecture.cost(stage, other)
        if one.fits_in(other):
            assert all(low <= high for low, high in zip(*costs, strict=True))


@pytest.mark.parametrize("name", known_architectures())
def test_layouts_run_from_the_cheapest_to_the_dearest(name: str) -> None:
    architecture = architecture_named(name)

    flops = [architecture.cost(Stage.PREFIX, layout).flops for layout in architecture.layouts]

    assert flops == sorted(set(flops))


@pytest.mark.parametrize("name", known_architectures())
def test_a_layout_is_held_by_exactly_those_it_fits_in(name: str) -> None:
    architecture = architecture_named(name)

    for layout, mask in zip(architecture.layouts, architecture.holds, strict=True):
        held = [other for bit, other in enumerate(architecture.layouts) if mask >> bit & 1]
        assert held == [other for other in architecture.layouts if layout.fits_in(other)]


def test_two_cameras_with_a_long_prompt_are_not_held_by_three_with_a_short_one() -> None:
    # pi0.5: layouts 0 to 3 are (2, 64), (2, 200), (3, 64), (3, 200).
    assert ARCHITECTURES["pi05"].holds == (0b1111, 0b1010, 0b1100, 0b1000)


def test_a_gated_feed_forward_part_has_half_as_many_weights_again() -> None:
    def feed_forward(*, gated: bool) -> int:
        shape = Tower(layers=1, width=8, heads=1, kv_heads=1, head_dim=8, ff_width=32, gated=gated)
        return shape.weights - 2 * 8 * (8 + 8)

    assert feed_forward(gated=True) * 2 == feed_forward(gated=False) * 3


def test_an_unknown_architecture_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no architecture 'pi9'; known: pi0, pi05, smolvla"):
        architecture_named("pi9")
