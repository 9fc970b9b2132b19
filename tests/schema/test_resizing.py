from typing import Literal, get_args

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.schema.resizing import INTERPOLATION, as_rgb8, resize_check, resized, write_image
from takt.schema.spec import CameraSpec, Interpolation, ResizeRule


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


CAMERAS = st.builds(
    CameraSpec,
    name=st.just("a"),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    resize=st.sampled_from(["stretch", "pad_center", "pad_left_top"]),
    interpolation=st.sampled_from(get_args(Interpolation)),
)


@given(st.integers(1, 90), st.integers(1, 90), CAMERAS, st.booleans())
def test_resized_by_the_robot_and_then_by_the_server_is_resized_by_the_server(
    height: int, width: int, camera: CameraSpec, is_float: bool
) -> None:
    image = np.random.default_rng(height * 97 + width).integers(0, 256, (height, width, 3))
    taken = image / np.float32(255) if is_float else image.astype(np.uint8)
    alone = np.full((camera.height, camera.width, 3), 9, np.uint8)
    write_image(taken, camera, alone)

    after = np.full_like(alone, 7)
    write_image(resized(taken, camera), camera, after)

    np.testing.assert_array_equal(after, alone)


def test_eight_bits_and_colours_last_are_what_the_server_begins_with() -> None:
    image = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)

    np.testing.assert_array_equal(as_rgb8((image / 255).transpose(2, 0, 1)), image)
    assert as_rgb8(image.transpose(2, 0, 1)).flags.c_contiguous


def test_an_opencv_that_rounds_in_another_way_has_another_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compute = resize_check.__wrapped__
    here = compute()
    assert here == resize_check()

    monkeypatch.setitem(INTERPOLATION, "linear", cv2.INTER_LINEAR_EXACT)

    assert compute() != here
