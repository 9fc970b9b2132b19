import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.policies.lerobot.resize import fitted_size, write_scaled
from takt.schema.spec import CameraSpec, ResizeRule


def scaled(image: np.ndarray, side: int, resize: ResizeRule = "pad_center") -> np.ndarray:
    camera = CameraSpec(name="c", height=side, width=side, resize=resize)
    out = np.full((side, side, 3), 9, np.float32)
    write_scaled(image, camera, out)
    return out


def test_the_fitted_size_is_cut_off_from_a_double() -> None:
    camera = CameraSpec(name="c", height=98, width=98)

    assert fitted_size(480, 848, camera) == (55, 97)
    assert fitted_size(98, 98, camera) == (98, 98)
    assert fitted_size(1, 5000, camera) == (1, 98)


def test_padding_is_black_and_where_the_rule_says() -> None:
    white = np.full((10, 40, 3), 255, np.uint8)

    centred, left_top = scaled(white, 9), scaled(white, 9, "pad_left_top")

    assert (centred[:, 0, 0] == 1).tolist() == [False] * 3 + [True] * 2 + [False] * 4
    assert (left_top[:, 0, 0] == 1).tolist() == [False] * 7 + [True] * 2
    assert centred.min() == left_top.min() == -1


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 40))
def test_values_stay_in_range_whatever_the_sizes(height: int, width: int, side: int) -> None:
    image = np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)

    out = scaled(image, side)

    assert out.min() >= -1
    assert out.max() <= 1


def test_channels_first_and_floats_give_the_same() -> None:
    image = np.random.default_rng(0).integers(0, 256, (12, 17, 3), np.uint8)
    floats = (image / np.float32(255)).astype(np.float32)

    np.testing.assert_array_equal(scaled(image, 8), scaled(image.transpose(2, 0, 1), 8))
    np.testing.assert_allclose(scaled(image, 8), scaled(floats, 8), atol=1e-6)


@pytest.mark.parametrize("size", [(480, 640), (480, 848), (50, 40), (7, 5)])
def test_scaling_is_bilinear_without_antialiasing(size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch", reason="torch is the reference")
    image = np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8)
    camera = CameraSpec(name="c", height=70, width=70, resize="pad_left_top")
    height, width = fitted_size(*size, camera)
    tensor = torch.from_numpy(image.astype(np.float32) / np.float32(255)).permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(
        tensor, size=(height, width), mode="bilinear", align_corners=False
    )[0].permute(1, 2, 0)

    out = scaled(image, 70, "pad_left_top")[70 - height :, 70 - width :]

    np.testing.assert_allclose(out, expected.numpy() * 2 - 1, atol=1e-5)
