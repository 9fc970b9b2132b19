import dataclasses

import numpy as np
import pytest

from takt.schema.encoded_image import EncodedImage
from takt.schema.observation import STATE_KEY, Observation, image_key


def test_a_key_is_spelled_as_the_client_did_and_else_as_takt_does() -> None:
    observation = Observation(spelled={STATE_KEY: "observation/state"})

    assert observation.spelling(STATE_KEY) == "observation/state"
    assert observation.spelling(image_key("wrist")) == "images.wrist"


def test_an_observation_is_frozen_and_its_default_mappings_too() -> None:
    observation = Observation()

    with pytest.raises(dataclasses.FrozenInstanceError):
        observation.prompt = "open the drawer"  # type: ignore[misc]
    with pytest.raises(TypeError):
        observation.images["wrist"] = np.zeros(1)  # type: ignore[index]


def test_its_memory_counts_images_and_state() -> None:
    image = np.zeros((4, 5, 3), np.uint8)

    assert Observation(images={"a": image}, state=np.zeros(3, np.float32)).num_bytes == 60 + 12


def test_an_image_that_is_not_decoded_counts_as_it_is_and_is_copied_with_the_rest() -> None:
    buffer = bytearray(b"a file")
    file = EncodedImage(encoding="png", data=memoryview(buffer), shape=(48, 64, 3))
    observation = Observation(encoded={"top": file})

    owned = observation.owned()
    buffer[:] = b"no one"

    assert observation.num_bytes == 6
    assert owned.encoded["top"].data == b"a file"


def test_an_image_among_what_else_a_client_sent_is_copied_too() -> None:
    buffer = bytearray(b"a file")
    file = EncodedImage(encoding="png", data=memoryview(buffer), shape=(48, 64, 3))

    owned = Observation(extra={"list": [file]}).owned()
    buffer[:] = b"no one"

    assert owned.extra["list"][0].data == b"a file"


def test_an_owned_observation_shares_no_memory_and_is_otherwise_the_same() -> None:
    lent = np.zeros(3)
    observation = Observation(
        state=lent,
        images={"top": lent},
        prompt="go",
        extra={"nested": {"list": [lent, 1]}, "text": "t"},
        spelled={"state": "observation/state"},
    )

    owned = observation.owned()
    lent[:] = 9

    assert owned.state is not None
    arrays = [owned.state, owned.images["top"], owned.extra["nested"]["list"][0]]
    assert [array.tolist() for array in arrays] == [[0, 0, 0]] * 3
    assert (owned.prompt, owned.spelled) == (observation.prompt, observation.spelled)
    assert owned.extra["text"] == "t"
    assert owned.extra["nested"]["list"][1] == 1
