"""An encoded image is a map, charged as what it claims to be before it is decoded."""

import pytest

from takt.errors import LimitError, ObservationError, RefusedError
from takt.schema.encoded_image import EncodedImage
from takt.wire.limits import Account, Limits
from takt.wire.msgpack_images import read_image, spell_image
from takt.wire.openpi import decode_observation, encode_observation

FILE = b"some file"


def spelled(**other: object) -> dict[str, object]:
    values = {"__image__": True, "format": "jpeg", "data": FILE, "shape": [48, 64, 3], **other}
    return {key: value for key, value in values.items() if value is not None}


def decoded(value: object, limits: Limits | None = None) -> object:
    message = encode_observation({"observation/top": value})
    return decode_observation(message, limits or Limits()).values["observation/top"]


def test_what_is_spelled_is_read_and_not_decoded() -> None:
    image = EncodedImage(encoding="png", data=FILE, shape=(48, 64, 3))

    read = decoded(spell_image(image))

    assert isinstance(read, EncodedImage)
    assert (read.encoding, bytes(read.data), read.shape) == ("png", FILE, (48, 64, 3))


def test_clients_may_spell_text_as_bytes() -> None:
    image = decoded({key.encode(): value for key, value in spelled(format=b"jpeg").items()})

    assert isinstance(image, EncodedImage)
    assert image.encoding == "jpeg"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (spelled(format="webp"), "expected an image of format jpeg or png, got 'webp'"),
        (spelled(format="JPEG"), "got 'JPEG'"),
        (spelled(format=None), "got nothing"),
        (spelled(format="x" * 500), "got 'xxxx"),
        (spelled(format=["jpeg"]), "got list"),
        (spelled(data=None), "expected the jpeg file as bytes in 'data', got nothing"),
        (spelled(data=b""), "got 0 bytes"),
        (spelled(data="text"), "got 'text'"),
        (spelled(shape=None), "sides of 1..8192 pixels, got nothing"),
        (spelled(shape=[48, 64]), "got 2 numbers"),
        (spelled(shape=[48, 64, 4]), "got 48, 64, 4"),
        (spelled(shape=[3, 48, 64]), "got 3, 48, 64"),
        (spelled(shape=[48, 64.0, 3]), "got 48, 64.0, 3"),
        (spelled(shape=[True, 64, 3]), "got True, 64, 3"),
        (spelled(shape=[0, 64, 3]), "got 0, 64, 3"),
        (spelled(shape=[-1, 64, 3]), "got -1, 64, 3"),
        (spelled(shape=[8193, 1, 3]), "got 8193, 1, 3"),
        (spelled(shape=[10**18, 10**18, 3]), "got 1000000000000000000"),
        (spelled(__image__=False), "got something else"),
        (spelled(__image__=1), "got something else"),
        (spelled(quality=90), "got the key 'quality'"),
    ],
)
def test_anything_else_is_refused_at_its_key(value: object, words: str) -> None:
    with pytest.raises(ObservationError) as caught:
        decoded(value)

    assert caught.value.key == "observation/top"
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


def test_pixels_that_are_announced_are_charged_as_if_they_were_there() -> None:
    with pytest.raises(LimitError, match="at most 9215 array elements"):
        decoded(spelled(), Limits(max_elements=9215))
    with pytest.raises(LimitError, match="at most 9000 decoded bytes"):
        decoded(spelled(), Limits(max_decoded_bytes=9000))

    assert isinstance(decoded(spelled(), Limits(max_elements=9216)), EncodedImage)


def test_many_small_files_of_huge_images_are_one_message_of_huge_images() -> None:
    account = Account(Limits())
    huge = {**spelled(shape=[4096, 4096, 3]), "data": memoryview(FILE)}
    read_image(huge, account)

    with pytest.raises(Exception, match="array elements in the message"):
        read_image(huge, account)


def test_an_image_that_is_no_map_of_ours_stays_what_it_is() -> None:
    assert decoded({"format": "jpeg", "shape": [1]}) == {"format": "jpeg", "shape": [1]}


def test_an_image_in_the_place_of_a_message_is_no_observation() -> None:
    with pytest.raises(RefusedError, match="expected a map, got EncodedImage"):
        decode_observation(encode_observation(spelled()), Limits())
