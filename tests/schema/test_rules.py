import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import ConfigError
from takt.schema.rules import check_holds, check_name, check_sizes


@given(st.lists(st.integers(1, 64), min_size=1, max_size=8))
def test_batch_sizes_pass_exactly_when_they_rise(sizes: list[int]) -> None:
    rising = sizes == sorted(set(sizes))

    if rising:
        check_sizes("prefix_sizes", tuple(sizes), may_be_empty=False)
    else:
        with pytest.raises(ConfigError, match="rising"):
            check_sizes("prefix_sizes", tuple(sizes), may_be_empty=False)


def test_only_the_denoise_stage_may_have_no_batch_size() -> None:
    check_sizes("denoise_sizes", (), may_be_empty=True)

    with pytest.raises(ConfigError):
        check_sizes("prefix_sizes", (), may_be_empty=False)


@pytest.mark.parametrize("holds", [(0b1,), (0b11, 0b10), (0b101, 0b110, 0b100)])
def test_layouts_that_fit_into_dearer_ones_pass(holds: tuple[int, ...]) -> None:
    check_holds(holds, len(holds))


@pytest.mark.parametrize(
    "holds",
    [
        (),
        (0b10, 0b10),  # not by itself
        (0b01, 0b10),  # not by the last
        (0b111, 0b110),  # by one that does not exist
        (0b11, 0b11),  # by a cheaper one
    ],
)
def test_a_layout_is_held_by_itself_the_last_and_no_cheaper_one(holds: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="holds"):
        check_holds(holds, max(1, len(holds)))


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201])
def test_a_name_is_short_and_printable(name: str) -> None:
    with pytest.raises(ConfigError, match="printable"):
        check_name("policy", name)
