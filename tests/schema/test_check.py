from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from takt.errors import ObservationError
from takt.schema.check import check_image, check_observation
from takt.schema.observation import Observation
from takt.schema.spec import CameraSpec, ObservationSpec

SPEC = ObservationSpec(
    cameras=(
        CameraSpec(name="base", height=8, width=6),
        CameraSpec(name="wrist", height=8, width=6, resize="pad_center", required=False),
    ),
    state_dim=3,
    prompt=True,
)
GOOD = Observation(
    images={"base": np.zeros((8, 6, 3), np.uint8)},
    state=np.zeros(3, np.float32),
    prompt="open the drawer",
    spelled={"state": "observation/state", "images.base": "observation/image"},
)


def changed(**fields: Any) -> Observation:  # noqa: ANN401 - any field
    return replace(GOOD, **fields)


def base(image: np.ndarray) -> Observation:
    return changed(images={"base": image})


@pytest.mark.parametrize(
    "observation",
    [
        GOOD,
        base(np.ones((8, 6, 3), np.float32)),
        base(np.zeros((3, 8, 6), np.uint8)),
        changed(images={**GOOD.images, "wrist": np.zeros((48, 64, 3), np.uint8)}),
        changed(images={**GOOD.images, "further": np.zeros(1)}),
        changed(state=np.zeros(3, np.int64)),
    ],
)
def test_an_observation_that_fits_passes(observation: Observation) -> None:
    check_observation(observation, SPEC)


@pytest.mark.parametrize(
    ("observation", "key", "received"),
    [
        (changed(images={}), "observation/image", "no image"),
        (changed(images={"top": np.zeros(1)}), "observation/image", "images came of 'top'"),
        (base(np.zeros((6, 8, 3), np.uint8)), "observation/image", "(6, 8, 3)"),
        (base(np.zeros((8, 6, 4), np.uint8)), "observation/image", "(8, 6, 4)"),
        (base(np.zeros((8, 6), np.uint8)), "observation/image", "(8, 6)"),
        (base(np.zeros((1, 8, 6, 3), np.uint8)), "observation/image", "(1, 8, 6, 3)"),
        (base(np.zeros((0, 6, 3), np.uint8)), "observation/image", "(0, 6, 3)"),
        (base(np.zeros((8, 6, 3), np.int16)), "observation/image", "int16"),
        (base(np.zeros((8, 6, 3), object)), "observation/image", "object"),
        (base(np.full((8, 6, 3), 255.0)), "observation/image", "255"),
        (base(np.full((8, 6, 3), np.nan)), "observation/image", "nan"),
        (changed(state=None), "observation/state", "no such key"),
        (changed(state=np.zeros(4)), "observation/state", "(4,)"),
        (changed(state=np.zeros((1, 3))), "observation/state", "(1, 3)"),
        (changed(state=np.array(["a", "b", "c"])), "observation/state", "<U1"),
        (changed(state=np.array([0, np.nan, 0])), "observation/state[1]", "nan"),
        (changed(state=np.array([0, 0, -np.inf])), "observation/state[2]", "-inf"),
        (changed(state=np.array([1e300, 0, 0])), "observation/state[0]", "1e+300"),
        (changed(prompt=None), "prompt", "no such key"),
        (changed(prompt="  "), "prompt", "empty"),
        (changed(prompt=b"open"), "prompt", "bytes"),
        (changed(prompt="a" * 5000), "prompt", "5000 letters"),
    ],
)
def test_an_observation_that_does_not_fit_is_refused_by_the_clients_key(
    observation: Observation, key: str, received: str
) -> None:
    with pytest.raises(ObservationError) as caught:
        check_observation(observation, SPEC)

    assert caught.value.key == key
    assert received in caught.value.received


def test_history_asks_for_several_instants() -> None:
    spec = ObservationSpec(cameras=SPEC.cameras[:1], state_dim=3, history=2)
    images = {"base": np.zeros((2, 8, 6, 3), np.uint8)}

    check_observation(Observation(images=images, state=np.zeros((2, 3))), spec)

    with pytest.raises(ObservationError, match=r"shape \(2, 3\)"):
        check_observation(Observation(images=images, state=np.zeros(3)), spec)
    with pytest.raises(ObservationError, match="2 images"):
        check_image("base", np.zeros((8, 6, 3), np.uint8), history=2)
