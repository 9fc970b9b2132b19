from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from takt.errors import ObservationError, RefusedError
from takt.policies.catalog import open_policy
from takt.policies.mini.checkpoint import SHIPPED, read_card
from takt.policies.mini.replay import load_recordings
from takt.policies.noise import noise_for
from takt.schema.observation import Observation
from takt.schema.row import Chunking, Row, RowHeader, RowRequest

PARTS = open_policy("mini")
CARD = read_card(SHIPPED)
OBSERVATION = load_recordings()[0].observation(0)
HEADER = RowHeader(state_dim=4, horizon=16, action_dim=4)


def write(
    observation: Observation = OBSERVATION, request: RowRequest | None = None
) -> tuple[RowHeader, dict[str, NDArray[Any]]]:
    slot = {t.name: np.full(t.shape, 9, t.dtype) for t in PARTS.spec.slot_tensors}
    header = PARTS.preprocessor().write(observation, slot, request or RowRequest())
    return header, slot


def test_a_row_holds_image_words_normalised_state_and_noise() -> None:
    header, slot = write(request=RowRequest(session="arm", sequence=2, seed=1))

    assert header == HEADER
    np.testing.assert_array_equal(slot["image"], OBSERVATION.images["image"])
    assert slot["words"].tolist() == CARD.tokenizer().encode(OBSERVATION.prompt or "").tolist()
    expected = (np.asarray(OBSERVATION.state) - CARD.state_mean) / CARD.state_std
    np.testing.assert_allclose(slot["state"], expected, rtol=1e-5)
    np.testing.assert_array_equal(slot["noise"], noise_for(1, "arm", 2, (16, 4)))
    assert not slot["prefix_weights"].any()


def test_images_of_other_sizes_are_scaled_with_their_proportions() -> None:
    large = np.full((480, 640, 3), 255, np.uint8)

    _, slot = write(replace(OBSERVATION, images={"image": large}))

    assert (slot["image"][14:98] == 255).all()
    assert not slot["image"][:14].any()


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"images": {}}, "images.image"),
        ({"state": np.zeros(5)}, "state"),
        ({"state": np.array([0, 0, 0, np.nan])}, "state[3]"),
        ({"prompt": None}, "prompt"),
        ({"prompt": "rendez-moi mon argent"}, "prompt"),
    ],
)
def test_an_observation_that_does_not_fit_is_refused_by_key(
    change: dict[str, Any], key: str
) -> None:
    with pytest.raises(ObservationError) as caught:
        write(replace(OBSERVATION, **change))

    assert caught.value.key == key


def test_a_shorter_chunk_may_be_asked_for_but_not_a_longer_one() -> None:
    assert write(request=RowRequest(horizon=8))[0].horizon == 8
    with pytest.raises(ObservationError, match=r"1\.\.16"):
        write(request=RowRequest(horizon=17))


def test_a_previous_chunk_reaches_the_slot() -> None:
    previous = np.ones((16, 4), np.float32)
    weights = np.linspace(1, 0, 16, dtype=np.float32)

    _, slot = write(
        request=RowRequest(
            chunking=Chunking(previous_chunk=previous, prefix_weights=weights, frozen_steps=3)
        )
    )

    np.testing.assert_array_equal(slot["previous_chunk"], previous)
    assert slot["frozen_steps"] == 3


def test_actions_keep_to_the_bounds_of_their_axes() -> None:
    chunk = np.linspace(-3, 3, 64, dtype=np.float32).reshape(16, 4)

    actions = PARTS.decoder().decode(chunk, Row(HEADER, {}))

    np.testing.assert_array_equal(actions, np.clip(chunk, -1, 1))


def test_a_shorter_chunk_is_cut_from_the_front() -> None:
    chunk = np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4)

    actions = PARTS.decoder().decode(chunk, Row(replace(HEADER, horizon=5), {}))

    np.testing.assert_array_equal(actions, chunk[:5])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_chunk_that_is_not_finite_is_refused_and_not_clipped(value: float) -> None:
    chunk = np.zeros((16, 4), np.float32)
    chunk[3, 1] = value

    with pytest.raises(RefusedError, match="not finite"):
        PARTS.decoder().decode(chunk, Row(HEADER, {}))
