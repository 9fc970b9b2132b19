from hypothesis import given
from hypothesis import strategies as st

from takt.policies.lerobot.layouts import FlowLayout, holding, layouts_of, smallest
from takt.schema.rules import check_holds


def length(layout: FlowLayout) -> int:
    return 64 * layout.images + layout.tokens


@given(st.integers(1, 4), st.integers(1, 300), st.integers(1, 4), st.integers(0, 300))
def test_every_row_finds_the_cheapest_layout_that_holds_it(
    max_images: int, max_tokens: int, images: int, tokens: int
) -> None:
    layouts = layouts_of(max_images, max_tokens, length)
    row = FlowLayout(min(images, max_images), min(tokens, max_tokens))

    found = smallest(layouts, row)

    assert layouts[-1] == FlowLayout(max_images, max_tokens)
    assert layouts[found].holds(row)
    assert not any(layout.holds(row) for layout in layouts[:found])
    check_holds(holding(layouts), len(layouts))


def test_layouts_have_names_for_people() -> None:
    assert FlowLayout(1, 16).name == "1 image, 16 tokens"
    assert FlowLayout(2, 48).name == "2 images, 48 tokens"
