"""Batch limits narrow what was captured."""

import pytest

from takt.core.model import Model
from takt.runtime.limits import narrowed
from takt.units import ms

MODEL = Model(
    name="pi0", architecture="pi0", slo=ms(9), prefix_sizes=(2, 4), denoise_sizes=(1, 4, 8)
)


@pytest.mark.parametrize(
    ("prefix", "denoise", "sizes"),
    [
        (None, None, ((2, 4), (1, 4, 8))),
        (3, 7, ((2,), (1, 4))),
        (4, 8, ((2, 4), (1, 4, 8))),
        (1, 1, ((2,), (1,))),  # the smallest captured size always stays
    ],
)
def test_sizes_up_to_the_limit_stay(
    prefix: int | None, denoise: int | None, sizes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    model = narrowed(MODEL, prefix, denoise)

    assert (model.prefix_sizes, model.denoise_sizes) == sizes


def test_a_single_pass_model_stays_one() -> None:
    act = Model(name="act", architecture="act", slo=ms(9), denoise_sizes=())

    assert narrowed(act, 1, 1).single_pass
