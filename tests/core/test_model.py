"""A model knows its captured shapes and refuses impossible ones by name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.driving import model_of

from takt.core.model import Model
from takt.core.request import Stage
from takt.errors import ConfigError

SIZES = st.sets(st.integers(1, 40), min_size=1, max_size=6).map(lambda sizes: tuple(sorted(sizes)))


@st.composite
def holders(draw: st.DrawFn) -> tuple[int, ...]:
    """Layouts that hold themselves and some others, the last one all."""
    count = draw(st.integers(1, 5))
    last = 1 << (count - 1)
    masks = st.integers(0, 2 * last - 1)
    return tuple(draw(masks) | 1 << layout | last for layout in range(count))


@given(sizes=SIZES, rows=st.integers(1, 50))
def test_the_filled_size_is_the_largest_that_has_no_padding(
    sizes: tuple[int, ...], rows: int
) -> None:
    filled = [size for size in sizes if size <= rows]

    size = model_of(prefix=sizes).filled_size(Stage.PREFIX, rows)

    assert size == (max(filled) if filled else min(sizes))


@given(sizes=SIZES, rows=st.integers(1, 50))
def test_the_holding_size_is_the_smallest_with_room_for_all(
    sizes: tuple[int, ...], rows: int
) -> None:
    holding = [size for size in sizes if size >= rows]

    size = model_of(denoise=sizes).holding_size(Stage.DENOISE, rows)

    assert size == (min(holding) if holding else max(sizes))


@given(holds=holders(), data=st.data())
def test_the_holding_layout_is_the_cheapest_that_holds_every_row(
    holds: tuple[int, ...], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(holds) - 1), min_size=1, max_size=4))

    layout = model_of(holds=holds).holding_layout(rows)

    able = [
        candidate
        for candidate in range(len(holds))
        if all(holds[row] & 1 << candidate for row in rows)
    ]
    assert layout == min(able)


def test_two_layouts_that_do_not_hold_each_other_need_a_third() -> None:
    model = model_of(holds=(0b101, 0b110, 0b100))

    assert model.holding_layout([0, 0]) == 0
    assert model.holding_layout([1]) == 1
    assert model.holding_layout([0, 1]) == 2


def test_each_stage_has_sizes_of_its_own() -> None:
    model = model_of(prefix=(1, 2), denoise=(4, 8))

    assert model.sizes(Stage.PREFIX) == (1, 2)
    assert model.sizes(Stage.DENOISE) == (4, 8)


def test_a_model_without_denoise_sizes_is_single_pass() -> None:
    assert model_of(denoise=()).single_pass
    assert not model_of(denoise=(1,)).single_pass


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("slo", 0, r"model 'act': slo must be positive, got 0 ns"),
        ("prefix_sizes", (), r"model 'act': prefix_sizes must be rising .*, got \[\]"),
        ("prefix_sizes", (0, 1), r"model 'act': prefix_sizes must be rising .*, got \[0, 1\]"),
        ("prefix_sizes", (2, 2), r"model 'act': prefix_sizes must be rising .*, got \[2, 2\]"),
        ("denoise_sizes", (4, 1), r"model 'act': denoise_sizes must be rising .*, got \[4, 1\]"),
        ("holds", (), r"model 'act': holds must name at least one layout"),
        ("holds", (0b10, 0b10), r"model 'act': layout 0 must be held by itself"),
        ("holds", (0b01, 0b10), r"model 'act': layout 0 .* by the last layout 1, got bit mask 0b1"),
        ("holds", (0b11, 0b110), r"model 'act': layout 1 .* got bit mask 0b110"),
    ],
)
def test_an_impossible_model_is_refused_by_name_and_field(
    field: str, value: object, message: str
) -> None:
    fields: dict[str, Any] = {"name": "act", "architecture": "act", "slo": 1, field: value}

    with pytest.raises(ConfigError, match=message):
        Model(**fields)
