import dataclasses

import numpy as np
import pytest

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
