"""Images are sent as the server takes them, and never so that the policy sees something else."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.pictures import natural, noise, psnr, red

from takt.client.image_sending import NegotiatedImages
from takt.client.image_settings import ImageSettings, SendImages
from takt.doors.openpi_images import image_offer
from takt.doors.openpi_keys import read_observation
from takt.gateway.decoding import with_decoded_images
from takt.schema.resizing import write_image
from takt.schema.spec import CameraSpec, ObservationSpec, ResizeRule
from takt.wire.limits import Limits
from takt.wire.openpi import decode_observation, encode_observation

FORMS: tuple[SendImages, ...] = ("as_given", "resized", "png", "jpeg")
TOP = CameraSpec(name="top", height=30, width=40, resize="pad_center", interpolation="area")
WRIST = CameraSpec(name="wrist", height=24, width=24, resize="stretch")
SPEC = ObservationSpec(cameras=(TOP, WRIST))
NO_CAMERAS = ObservationSpec()


def images_of(
    send: SendImages, spec: ObservationSpec | None = SPEC, **offer: object
) -> NegotiatedImages:
    offered = {} if spec is None else image_offer(spec)
    return NegotiatedImages(ImageSettings(send=send), {**offered, **offer}, spec)


def arriving(images: NegotiatedImages, values: Mapping[str, object], spec: ObservationSpec) -> Any:  # noqa: ANN401
    """The observation that a policy is given in the end, after the whole way."""
    message = encode_observation(images.prepare(values).values)
    return with_decoded_images(
        read_observation(decode_observation(message, Limits()).values, spec), spec
    )


def seen(image: np.ndarray, camera: CameraSpec) -> np.ndarray:
    out = np.zeros((camera.height, camera.width, 3), np.uint8)
    write_image(image, camera, out)
    return out


@pytest.mark.parametrize("send", FORMS)
@pytest.mark.parametrize("spec", [SPEC, NO_CAMERAS], ids=["cameras", "any"])
def test_pure_red_arrives_red(send: SendImages, spec: ObservationSpec) -> None:
    observation = arriving(images_of(send, spec), {"observation/top": red(60, 80)}, spec)

    picture = seen(observation.images["top"], TOP)

    assert picture[..., 0].min() > 200
    assert picture[..., 1:].max() < 50


@given(
    st.sampled_from(["resized", "png"]),
    st.integers(1, 90),
    st.integers(1, 90),
    st.sampled_from(["exact", "stretch", "pad_center", "pad_left_top"]),
    st.sampled_from(["uint8", "float", "channels first"]),
)
def test_without_loss_the_policy_sees_what_it_would_see_of_the_image_itself(
    send: SendImages, height: int, width: int, resize: ResizeRule, kind: str
) -> None:
    sides = (height, width) if resize == "exact" else (24, 32)
    camera = CameraSpec(name="top", height=sides[0], width=sides[1], resize=resize)
    spec = ObservationSpec(cameras=(camera,))
    image: np.ndarray = noise(height, width)
    if kind == "float":
        image = image / np.float32(255)
    elif kind == "channels first" and width != 3:
        image = image.transpose(2, 0, 1)

    arrived = arriving(images_of(send, spec), {"observation/top": image}, spec)

    np.testing.assert_array_equal(seen(arrived.images["top"], camera), seen(image, camera))


def test_a_jpeg_is_near_to_what_the_policy_would_see() -> None:
    camera = CameraSpec(name="top", height=224, width=224, resize="pad_center")
    spec = ObservationSpec(cameras=(camera,))
    picture = natural(480, 640)

    arrived = arriving(images_of("jpeg", spec), {"images": {"top": picture}}, spec)

    assert arrived.images["top"].shape == (224, 224, 3)
    assert psnr(seen(arrived.images["top"], camera), seen(picture, camera)) > 35


def test_bytes_that_are_spared_are_counted() -> None:
    values = {"observation/top": natural(), "observation/wrist": natural(), "state": np.zeros(3)}
    raw = len(encode_observation(values))
    for send in FORMS:
        prepared = images_of(send).prepare(values)

        sent = len(encode_observation(prepared.values))
        assert raw - 100 < sent + prepared.spared_bytes < raw + 100
        assert (sent < raw / 20) == (send != "as_given")


def test_an_image_is_never_enlarged_before_it_is_sent() -> None:
    small = noise(6, 8)

    prepared = images_of("resized").prepare({"observation/top": small})

    np.testing.assert_array_equal(prepared.values["observation/top"], small)
    assert prepared.spared_bytes == 0


def test_a_file_that_is_larger_than_its_pixels_is_not_sent() -> None:
    prepared = images_of("png", NO_CAMERAS).prepare({"image": noise()})

    np.testing.assert_array_equal(prepared.values["image"], noise())


def test_what_the_robot_handed_over_is_not_changed() -> None:
    picture = natural()
    values = {"images": {"top": picture}, "state": np.zeros(2)}

    images_of("png").prepare(values)

    assert values["images"] == {"top": picture}
    np.testing.assert_array_equal(picture, natural())


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((30, 40), np.uint8),
        np.zeros((30, 40, 4), np.uint8),
        np.zeros((30, 40, 3), np.int16),
        np.full((30, 40, 3), 1.5),
        np.full((30, 40, 3), np.nan),
        np.zeros((0, 40, 3), np.uint8),
        "no image",
        None,
    ],
)
def test_what_is_no_image_is_left_for_the_server_to_refuse(value: object) -> None:
    assert images_of("jpeg").prepare({"observation/top": value}).values["observation/top"] is value


@pytest.mark.parametrize("send", ["resized", "png", "jpeg"])
def test_arrays_that_are_no_cameras_of_the_model_stay_as_they_are(send: SendImages) -> None:
    poses = np.linspace(0, 1, 4 * 5 * 3).reshape(4, 5, 3)
    values: dict[str, object] = {"observation/poses": poses, "side": natural(), "state": poses[0]}

    prepared = images_of(send).prepare(values)

    assert all(prepared.values[key] is value for key, value in values.items())
    assert images_of(send, NO_CAMERAS).prepare({"poses": poses}).values["poses"] is poses


def test_a_server_that_offers_nothing_gets_images_as_they_are() -> None:
    values = {"observation/top": natural()}
    for send in FORMS:
        images = NegotiatedImages(ImageSettings(send=send), None, None)

        assert images.prepare(values) == (values, 0)
        assert images.prepare(values).values is values


def test_what_is_wanted_and_not_to_be_had_is_said() -> None:
    no_encodings = images_of("jpeg", encodings=[])
    silent = images_of("resized", resize_check=None)
    other = images_of("png", resize_check=1)

    assert no_encodings.refusals == ("no image is encoded, as the server takes no jpeg",)
    assert no_encodings.encoding is None
    assert silent.refusals == (
        "top, wrist: not resized here, as the server does not say how it does it",
    )
    assert other.refusals == (
        "top, wrist: not resized here, as the OpenCV of this computer computes other pixels than"
        " the server's",
    )
    assert (other.encoding, other.resized) == ("png", {})
    assert images_of("jpeg").refusals == ()


def test_a_policy_that_mixes_pixels_in_its_own_way_gets_them_all() -> None:
    camera = CameraSpec(name="top", height=8, width=8, resize="stretch", robot_may_resize=False)
    spec = ObservationSpec(cameras=(camera,))
    images = images_of("png", spec)

    arrived = arriving(images, {"observation/top": natural()}, spec)

    np.testing.assert_array_equal(arrived.images["top"], natural())
    assert images.refusals == ("top: not resized here, as only the server can do it exactly",)


def test_floats_that_the_server_would_not_round_are_not_rounded_here() -> None:
    camera = CameraSpec(name="top", height=8, width=8, resize="stretch", robot_may_resize=False)
    spec = ObservationSpec(cameras=(camera,))
    picture = natural() / np.float32(255)

    arrived = arriving(images_of("png", spec), {"observation/top": picture}, spec)

    np.testing.assert_array_equal(arrived.images["top"], picture)


@pytest.mark.parametrize("encodings", ["jpeg", 5, None, {"jpeg": True}])
def test_an_offer_that_is_not_understood_is_none(encodings: object) -> None:
    assert images_of("jpeg", encodings=encodings).encoding is None
