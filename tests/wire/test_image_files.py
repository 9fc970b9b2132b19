"""Pixels survive their files: all of them in PNG, nearly in JPEG, and colours in their order."""

from struct import pack
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.wire.pictures import chunk, natural, noise, psnr, red

from takt.policies.mini.replay import load_recordings
from takt.schema.encoded_image import ENCODINGS, EncodedImage, ImageEncoding
from takt.wire.image_files import available_encodings, decode_image, encode_image
from takt.wire.limits import UnplacedError

SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 40), st.just(3))


def sent(image: np.ndarray, encoding: ImageEncoding, **options: Any) -> EncodedImage:  # noqa: ANN401
    height, width, _ = image.shape
    data = encode_image(image, encoding, **options)
    return EncodedImage(encoding=encoding, data=data, shape=(height, width, 3))


@pytest.mark.slow
@given(arrays.arrays(np.uint8, SHAPES))
def test_a_png_gives_back_every_pixel(image: np.ndarray) -> None:
    np.testing.assert_array_equal(decode_image(sent(image, "png")), image)


@pytest.mark.parametrize("quality", [90, 95])
def test_a_jpeg_of_a_natural_picture_is_near_to_it(quality: int) -> None:
    frames = [recording.observation(3).images["image"] for recording in load_recordings()[:4]]
    for picture in (natural(), *frames):
        decoded = decode_image(sent(picture, "jpeg", jpeg_quality=quality))

        assert psnr(decoded, picture) > 35


def test_a_jpeg_of_a_natural_picture_is_a_fraction_of_it() -> None:
    assert len(encode_image(natural(), "jpeg")) < natural().nbytes / 4


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_red_stays_red(encoding: ImageEncoding) -> None:
    decoded = decode_image(sent(red(), encoding))

    assert decoded[..., 0].min() > 200
    assert decoded[..., 1:].max() < 50


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_pixels_need_not_lie_in_order_or_be_writable(encoding: ImageEncoding) -> None:
    mirrored = noise()[:, ::-1]
    mirrored.flags.writeable = False

    decoded = decode_image(sent(mirrored, encoding, jpeg_quality=100))

    assert psnr(decoded, mirrored) > 30


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_file_of_another_kind_than_announced_is_refused(encoding: ImageEncoding) -> None:
    other: ImageEncoding = "png" if encoding == "jpeg" else "jpeg"
    image = EncodedImage(encoding=encoding, data=sent(noise(), other).data, shape=(24, 40, 3))

    with pytest.raises(UnplacedError, match=f"expected a {encoding.upper()} file"):
        decode_image(image)


@given(st.sampled_from(ENCODINGS), st.integers(0, 10**6), st.integers(1, 255))
def test_a_file_with_a_damaged_byte_decodes_to_its_shape_or_is_refused(
    encoding: ImageEncoding, place: int, damage: int
) -> None:
    image = sent(noise(), encoding)
    data = bytearray(image.data)
    data[place % len(data)] ^= damage
    damaged = EncodedImage(encoding=encoding, data=bytes(data), shape=image.shape)

    try:
        decoded = decode_image(damaged)
    except UnplacedError:
        return
    assert (decoded.shape, decoded.dtype) == (image.shape, np.uint8)


def test_pixels_that_are_damaged_are_refused_and_not_made_up() -> None:
    image = sent(noise(), "jpeg")
    data = bytes(image.data)
    middle = len(data) // 2
    cut = data[:middle] + data[-2:]

    with pytest.raises(UnplacedError, match="damaged"):
        decode_image(EncodedImage(encoding="jpeg", data=cut, shape=image.shape))


def test_an_orientation_beside_the_pixels_turns_nothing() -> None:
    sideways = b"II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00" + pack("<IHH", 1, 6, 0) + bytes(4)
    exif = b"Exif\x00\x00" + sideways
    plain = {encoding: bytes(sent(noise(), encoding).data) for encoding in ENCODINGS}
    jpeg, png = plain["jpeg"], plain["png"]
    turned = {
        "jpeg": jpeg[:2] + b"\xff\xe1" + pack(">H", len(exif) + 2) + exif + jpeg[2:],
        "png": png[:33] + chunk(b"eXIf", sideways) + png[33:],
    }

    for encoding in ENCODINGS:
        left, right = (
            decode_image(EncodedImage(encoding=encoding, data=data, shape=(24, 40, 3)))
            for data in (turned[encoding], plain[encoding])
        )
        np.testing.assert_array_equal(left, right)


def test_what_is_installed_is_available() -> None:
    assert available_encodings() == ENCODINGS


def test_without_a_decoder_an_image_is_refused_with_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = sent(noise(), "jpeg")
    monkeypatch.setattr("takt.wire.image_files.PACKAGES", {"jpeg": "no_such_jpeg", "png": "cv2"})

    assert available_encodings() == ("png",)
    with pytest.raises(UnplacedError, match="expected png, which is what this server decodes"):
        decode_image(image)
