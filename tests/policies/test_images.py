from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.policies.images import write_image
from takt.schema.spec import CameraSpec, ResizeRule


def seen(image: np.ndarray, resize: ResizeRule, size: int = 8) -> np.ndarray:
    camera = CameraSpec(name="a", height=size, width=size, resize=resize, interpolation="area")
    out = np.full((size, size, 3), 77, np.uint8)
    write_image(image, camera, out)
    return out


def test_an_image_of_the_right_size_is_taken_as_it_is() -> None:
    image = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)

    np.testing.assert_array_equal(seen(image, "exact"), image)


def test_float_images_and_channels_first_give_the_same_pixels() -> None:
    image = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)
    floats = (image / np.float32(255)).transpose(2, 0, 1)

    np.testing.assert_array_equal(seen(floats, "exact"), image)


@pytest.mark.parametrize(
    ("resize", "rows"),
    [("stretch", slice(0, 8)), ("pad_center", slice(2, 6)), ("pad_left_top", slice(4, 8))],
)
def test_a_wide_image_lies_where_the_resize_rule_puts_it(
    resize: Literal["stretch", "pad_center", "pad_left_top"], rows: slice
) -> None:
    white = np.full((16, 32, 3), 255, np.uint8)
    expected = np.zeros((8, 8, 3), np.uint8)
    expected[rows] = 255

    np.testing.assert_array_equal(seen(white, resize), expected)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(["pad_center", "pad_left_top"]))
def test_padding_keeps_every_size_within_the_picture(
    height: int, width: int, resize: ResizeRule
) -> None:
    out = seen(np.full((height, width, 3), 200, np.uint8), resize)

    assert set(np.unique(out)) <= {0, 200}
    assert (out == 200).any()
