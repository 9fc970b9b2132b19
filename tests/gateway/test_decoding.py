"""Images that came as files are decoded for the cameras that count, and refused by their key."""

import numpy as np
import pytest
from tests.wire.pictures import noise

from takt.errors import ObservationError
from takt.gateway.decoding import with_decoded_images
from takt.schema.encoded_image import EncodedImage, ImageEncoding
from takt.schema.observation import Observation, image_key
from takt.schema.spec import CameraSpec, ObservationSpec
from takt.wire.image_files import encode_image

TOP = CameraSpec(name="top", height=24, width=40)
ANY = ObservationSpec()
ONE = ObservationSpec(cameras=(TOP,))


def file_of(image: np.ndarray, encoding: ImageEncoding = "png") -> EncodedImage:
    height, width, _ = image.shape
    data = encode_image(image, encoding)
    return EncodedImage(encoding=encoding, data=data, shape=(height, width, 3))


BROKEN = EncodedImage(encoding="jpeg", data=b"\xff\xd8 no", shape=(24, 40, 3))


def test_files_become_arrays_beside_those_that_came_as_arrays() -> None:
    side = noise(4, 5)
    observation = Observation(images={"side": side}, encoded={"top": file_of(noise())})

    decoded = with_decoded_images(observation, ANY)

    assert not decoded.encoded
    assert decoded.images["side"] is side
    np.testing.assert_array_equal(decoded.images["top"], noise())


def test_an_observation_without_files_is_the_same_object() -> None:
    observation = Observation(images={"top": noise()})

    assert with_decoded_images(observation, ONE) is observation


def test_an_image_that_the_policy_does_not_look_at_is_not_decoded() -> None:
    observation = Observation(encoded={"top": file_of(noise()), "side": BROKEN})

    assert with_decoded_images(observation, ONE).images.keys() == {"top"}


def test_a_broken_image_is_refused_by_the_clients_own_key() -> None:
    observation = Observation(
        encoded={"top": BROKEN}, spelled={image_key("top"): "observation/top_image"}
    )

    with pytest.raises(ObservationError, match="whole JPEG file") as caught:
        with_decoded_images(observation, ONE)

    assert caught.value.key == "observation/top_image"


def test_a_policy_that_reads_several_instants_takes_arrays() -> None:
    observation = Observation(encoded={"top": file_of(noise())})

    with pytest.raises(ObservationError, match="expected 2 images as one array") as caught:
        with_decoded_images(observation, ObservationSpec(cameras=(TOP,), history=2))

    assert caught.value.received == "one png image"
