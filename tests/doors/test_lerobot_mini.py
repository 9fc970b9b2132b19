"""`mini` sees the same through the LeRobot door as through openpi's."""

from typing import Any

import numpy as np

from takt.client.lerobot_values import features_of as declared
from takt.client.lerobot_values import values_of
from takt.doors.lerobot_keys import features_of, read_observation
from takt.doors.openpi_keys import read_observation as read_openpi
from takt.policies.catalog import PolicyParts, open_policy
from takt.schema.observation import Observation
from takt.schema.row import RowRequest
from takt.session.features import difference
from takt.wire.lerobot import (
    LerobotObservation,
    LerobotSetup,
    decode_observation,
    decode_setup,
    encode_observation,
    encode_setup,
)
from takt.wire.lerobot_objects import Spelling
from takt.wire.limits import Limits

FEATURES = declared(
    {
        **dict.fromkeys(("gripper_x", "gripper_y", "gripper_z", "gripper_opening"), float),
        "image": (112, 112, 3),
    }
)
SETUP = LerobotSetup(
    policy_type="act",
    pretrained_name_or_path="mini",
    features=FEATURES,
    actions_per_chunk=16,
    rename_map={},
    spelling=Spelling.ASYNC_INFERENCE,
)


def inputs_of(parts: PolicyParts, observation: Observation) -> dict[str, np.ndarray]:
    """All that reaches the network: what is written for the same request."""
    slot: dict[str, Any] = {
        tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in parts.spec.slot_tensors
    }
    parts.preprocessor().write(observation, slot, RowRequest(session="s", sequence=7, seed=1))
    return slot


def test_the_network_gets_the_same_bytes_whichever_door_an_observation_comes_through() -> None:
    parts = open_policy("mini")
    random = np.random.default_rng(1)
    seen = {
        "observation/image": random.integers(0, 255, (112, 112, 3), np.uint8),
        "observation/state": random.normal(size=4).astype(np.float32),
        "prompt": "open the drawer",
    }
    sent = encode_observation(
        LerobotObservation(
            timestamp=1.5,
            timestep=3,
            must_go=True,
            values=values_of(seen, FEATURES),
            spelling=Spelling.ASYNC_INFERENCE,
        )
    )
    features = features_of(decode_setup(encode_setup(SETUP), Limits()))

    through_lerobot = read_observation(decode_observation(sent, Limits()), features)
    through_openpi = read_openpi(seen, parts.spec.observation)

    assert difference(features, parts.spec) == ()
    ours, theirs = inputs_of(parts, through_lerobot), inputs_of(parts, through_openpi)
    assert ours.keys() == theirs.keys()
    assert any(array.any() for array in ours.values())
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)
