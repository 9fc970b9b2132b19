from typing import Any

import numpy as np
import pytest

from takt.doors.lerobot_keys import features_of, features_seen, read_observation
from takt.errors import ObservationError, WireError
from takt.policies.catalog import open_policy
from takt.session.features import ImageFeature, RobotFeatures
from takt.wire.lerobot import LerobotObservation, LerobotSetup, LerobotValue
from takt.wire.lerobot_features import LerobotFeature
from takt.wire.lerobot_objects import Spelling

PIXELS = np.zeros((4, 6, 3), np.uint8)
FRONT = ImageFeature(name="front", height=4, width=6, channels=3)
ROBOT = RobotFeatures(
    state_dim=2,
    state_names=("b.pos", "a.pos"),
    images=(FRONT,),
    rename=(("observation.images.front", "observation.images.top"),),
)


def setup(features: dict[str, LerobotFeature], **rename: str) -> LerobotSetup:
    return LerobotSetup(
        policy_type="act",
        pretrained_name_or_path="fold",
        features=features,
        actions_per_chunk=50,
        rename_map=rename,
        spelling=Spelling.ASYNC_INFERENCE,
    )


def observed(**values: LerobotValue) -> LerobotObservation:
    return LerobotObservation(
        timestamp=0.0,
        timestep=0,
        must_go=False,
        values=values,
        spelling=Spelling.ASYNC_INFERENCE,
    )


def state(*names: str) -> LerobotFeature:
    return LerobotFeature(dtype="float32", shape=(len(names),), names=names)


def test_a_handshake_says_joints_in_order_and_cameras() -> None:
    hwc = LerobotFeature(dtype="image", shape=(4, 6, 3), names=("height", "width", "channels"))
    chw = LerobotFeature(dtype="image", shape=(3, 4, 6), names=("channels", "height", "width"))
    found = features_of(
        setup(
            {
                "observation.state": state("b.pos", "a.pos"),
                "observation.images.front": hwc,
                "observation.images.wrist": chw,
            },
            same="same",
            old="new",
        )
    )

    assert found.state_names == ("b.pos", "a.pos")
    assert [(image.name, image.height, image.channels) for image in found.images] == [
        ("front", 4, 3),
        ("wrist", 4, 3),
    ]
    assert found.rename == (("old", "new"),)


@pytest.mark.parametrize(
    "feature",
    [
        LerobotFeature(dtype="float32", shape=(2, 2)),
        LerobotFeature(dtype="float32", shape=(3,), names=("a", "b")),
        LerobotFeature(dtype="float32", shape=(2,), names=("a", "a")),
        LerobotFeature(dtype="float32", shape=(100_000,)),
    ],
)
def test_an_impossible_state_is_refused(feature: LerobotFeature) -> None:
    with pytest.raises(WireError, match=r"observation\.state"):
        features_of(setup({"observation.state": feature}))


def test_the_state_is_in_the_order_of_the_handshake_and_cameras_are_renamed() -> None:
    values: dict[str, LerobotValue] = {
        "a.pos": 1.0, "b.pos": 2.0, "front": PIXELS, "task": "fold", "spare": 9.0,
    }  # fmt: skip
    found = read_observation(observed(**values), ROBOT)

    assert found.state is not None
    assert found.state.tolist() == [2.0, 1.0]
    assert found.images["top"] is PIXELS
    assert found.prompt == "fold"
    assert found.extra == {"spare": 9.0}
    assert found.spelling("images.top") == "front"


def test_a_camera_may_come_under_its_full_key() -> None:
    values: dict[str, LerobotValue] = {
        "a.pos": 1.0, "b.pos": 2.0, "observation.images.front": PIXELS,
    }  # fmt: skip
    found = read_observation(observed(**values), ROBOT)

    assert found.spelling("images.top") == "observation.images.front"


@pytest.mark.parametrize("key", ["observation.state", "state"])
def test_a_state_may_come_as_one_array(key: str) -> None:
    found = read_observation(observed(**{key: np.ones(2, np.float32), "front": PIXELS}), ROBOT)

    assert found.state is not None
    assert found.state.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a.pos": None}, "a.pos: expected a number, got no such key"),
        ({"a.pos": "text"}, "a.pos: expected a number"),
        ({"a.pos": np.ones(2)}, "a.pos: expected a number"),
        ({"front": None}, "front: expected an image of shape"),
        ({"front": 1.0}, "front: expected an image as an array"),
        ({"front": PIXELS[:2]}, "front: expected shape"),
        ({"task": 1.0}, "task: expected text"),
        ({"state": np.ones(3)}, "state: expected an array of 2 values"),
    ],
)
def test_what_was_not_announced_is_refused_by_its_key(change: dict[str, Any], words: str) -> None:
    values: dict[str, Any] = {
        "a.pos": 1.0, "b.pos": 2.0, "front": PIXELS, "task": "fold", **change,
    }  # fmt: skip
    kept = {key: value for key, value in values.items() if value is not None}

    with pytest.raises(ObservationError, match=words):
        read_observation(observed(**kept), ROBOT)


def test_joints_without_names_must_come_as_one_array() -> None:
    nameless = RobotFeatures(state_dim=2)

    with pytest.raises(ObservationError, match="gave the joints no names"):
        read_observation(observed(**{"a.pos": 1.0, "b.pos": 2.0}), nameless)


def test_a_robot_without_a_handshake_is_told_by_what_it_sends() -> None:
    spec = open_policy("echo").spec
    values: dict[str, LerobotValue] = {
        "a.pos": 1.0, "b.pos": 2.0, "front": PIXELS, "task": "fold",
    }  # fmt: skip

    found = features_seen(observed(**values), spec)

    assert found == RobotFeatures(state_dim=2, state_names=("a.pos", "b.pos"), images=(FRONT,))
    assert features_seen(observed(task="fold"), spec) is None
