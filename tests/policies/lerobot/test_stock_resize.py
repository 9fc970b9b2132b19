import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.lerobot.checkpoints import PI0, SMOLVLA, opened, seen

from takt.policies.lerobot.rows import FlowPreprocessor
from takt.policies.lerobot.stock_resize import squash
from takt.schema.row import RowRequest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((48, 64), (24, 32)),
        ((120, 160), (224, 224)),
        ((480, 640), (224, 224)),
        ((37, 53), (98, 55)),
        ((64, 64), (64, 30)),
        ((64, 64), (30, 64)),
    ],
)
def test_pixels_are_those_of_torch(old: tuple[int, int], new: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch", reason="compares with torch")
    image = np.random.default_rng(0).integers(0, 256, (*old, 3), np.uint8)
    theirs = torch.nn.functional.interpolate(
        torch.from_numpy(image).permute(2, 0, 1)[None], size=new, mode="bilinear"
    )

    np.testing.assert_array_equal(squash(image, *new), theirs[0].permute(1, 2, 0).numpy())


def test_an_image_of_that_size_is_left_alone() -> None:
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)

    assert squash(image, 4, 4) is image


def test_a_float_image_is_rounded_first() -> None:
    assert squash(np.full((4, 4, 3), 0.5), 2, 2).tolist() == np.full((2, 2, 3), 128).tolist()


@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40),
    st.integers(0, 255),
)  # fmt: skip
def test_an_even_image_stays_even(h: int, w: int, height: int, width: int, value: int) -> None:
    image = np.full((h, w, 3), value, np.uint8)

    assert (squash(image, height, width) == value).all()


@pytest.mark.parametrize("golden", [PI0, SMOLVLA], ids=["pi0", "smolvla"])
def test_the_switch_squashes_what_the_policy_is_given(golden: Path) -> None:
    checkpoint = opened(golden)
    spec = checkpoint.spec("arm")
    observation = seen("fold")
    by_hand = dataclasses.replace(
        observation,
        images={
            name: squash(image, *checkpoint.config.feature_sizes[name])
            for name, image in observation.images.items()
        },
    )
    rows: list[np.ndarray] = []
    for given_observation, is_stock in ((observation, True), (by_hand, False)):
        slot = {t.name: np.zeros(t.shape, t.dtype) for t in spec.slot_tensors}
        preprocessor = FlowPreprocessor(spec, checkpoint, stock_resize=is_stock)
        preprocessor.write(given_observation, slot, RowRequest())
        rows.append(slot["images"])

    np.testing.assert_array_equal(rows[0], rows[1])
