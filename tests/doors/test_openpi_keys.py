"""Every spelling of an observation means the same, and errors use the client's."""

from typing import Any

import numpy as np
import pytest

from takt.doors.openpi_keys import read_observation
from takt.errors import ObservationError
from takt.schema.check import check_observation
from takt.schema.encoded_image import EncodedImage
from takt.schema.observation import image_key
from takt.schema.spec import CameraSpec, ObservationSpec

IMAGE = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
STATE = np.arange(8, dtype=np.float32)
ANY = ObservationSpec(state_dim=8)
TWO_CAMERAS = ObservationSpec(
    cameras=(
        CameraSpec(name="top", height=4, width=5),
        CameraSpec(name="wrist", height=4, width=5),
    ),
    state_dim=8,
)


@pytest.mark.parametrize(
    "values",
    [
        {"observation/top": IMAGE, "observation/wrist": IMAGE, "observation/state": STATE},
        {"observation/top_image": IMAGE, "observation/wrist_image": IMAGE, "state": STATE},
        {"images": {"top": IMAGE, "wrist": IMAGE}, "state": STATE},
        {
            "observation.images.top": IMAGE,
            "observation.images.wrist": IMAGE,
            "observation.state": STATE,
        },
        {"observation": {"images": {"top": IMAGE, "wrist": IMAGE}, "state": STATE}},
        {"top": IMAGE, "wrist": IMAGE, "proprio": STATE},
    ],
    ids=["libero", "suffix", "aloha", "lerobot", "nested", "bare"],
)
def test_every_spelling_gives_the_same_observation(values: dict[str, Any]) -> None:
    observation = read_observation(values, TWO_CAMERAS)

    check_observation(observation, TWO_CAMERAS)
    assert sorted(observation.images) == ["top", "wrist"]
    np.testing.assert_array_equal(observation.images["wrist"], IMAGE)
    assert observation.state is not None
    np.testing.assert_array_equal(observation.state, STATE)


def test_the_first_spelling_of_the_state_holds() -> None:
    values = {"proprio": STATE + 2, "state": STATE + 1, "observation/state": STATE}

    observation = read_observation(values, ANY)

    assert observation.state is values["observation/state"]
    assert sorted(observation.extra) == ["proprio", "state"]


@pytest.mark.parametrize("gripper", [np.array([0.5]), np.float64(0.5), 0.5, [0.5]])
def test_droids_joints_and_gripper_are_the_state(gripper: object) -> None:
    values = {
        "observation/gripper_position": gripper,
        "observation/joint_position": np.arange(7.0),
    }

    observation = read_observation(values, ANY)

    np.testing.assert_array_equal(observation.state, [0, 1, 2, 3, 4, 5, 6, 0.5])


def test_a_camera_is_bound_by_name_and_never_by_position() -> None:
    values = {"observation/side": IMAGE, "observation/wrist": IMAGE, "state": STATE}

    with pytest.raises(ObservationError) as caught:
        check_observation(read_observation(values, TWO_CAMERAS), TWO_CAMERAS)

    assert caught.value.key == "observation/top"
    assert "'side', 'wrist'" in caught.value.received


def test_a_missing_camera_is_named_as_the_client_would_spell_it() -> None:
    observation = read_observation({"images": {"wrist": IMAGE}, "state": STATE}, TWO_CAMERAS)

    assert observation.spelling(image_key("top")) == "images/top"


@pytest.mark.parametrize(
    ("values", "key", "received"),
    [
        ({"observation/state": "x"}, "observation/state", "str"),
        ({"state": []}, "state", "a list that is empty"),
        ({"state": [1, None]}, "state", "holds something else"),
        ({"state": STATE, "observation/image": "x"}, "observation/image", "str"),
        ({"state": STATE, "images": {"top": [1, 2]}}, "images/top", "a list"),
        ({"state": STATE, "prompt": 5}, "prompt", "int"),
        ({"state": STATE, "prompt": STATE}, "prompt", "an array of float32"),
        ({"state": STATE, "top": IMAGE, "images": {"top": IMAGE}}, "images/top", "a second one"),
        (
            {"state": STATE, "observation.images.top": IMAGE, "observation/images/top": IMAGE},
            "observation/images/top",
            "the same as observation.images.top",
        ),
        (
            {"observation": {"state": STATE}, "observation/state": STATE},
            "observation/state",
            "the same as observation/state",
        ),
    ],
)
def test_the_wrong_kind_is_refused_in_the_clients_spelling(
    values: dict[str, Any], key: str, received: str
) -> None:
    with pytest.raises(ObservationError) as caught:
        read_observation(values, TWO_CAMERAS)

    assert caught.value.key == key
    assert received in caught.value.received


FILE = EncodedImage(encoding="jpeg", data=b"not looked at", shape=(4, 5, 3))


@pytest.mark.parametrize(
    "values",
    [
        {"observation/top_image": FILE, "observation/wrist": IMAGE},
        {"images": {"top": FILE, "wrist": IMAGE}},
        {"observation.images.top": FILE, "observation.images.wrist": IMAGE},
    ],
)
def test_an_image_as_a_file_is_bound_to_its_camera_and_not_decoded(values: dict[str, Any]) -> None:
    observation = read_observation({**values, "state": STATE}, TWO_CAMERAS)

    assert observation.encoded == {"top": FILE}
    assert observation.images.keys() == {"wrist"}
    assert observation.spelling(image_key("top")) in {
        "observation/top_image",
        "images/top",
        "observation.images.top",
    }


def test_a_camera_sends_an_array_or_a_file_and_not_both() -> None:
    with pytest.raises(ObservationError, match="a second one of 'top'"):
        read_observation({"top": FILE, "images": {"top": IMAGE}, "state": STATE}, TWO_CAMERAS)


def test_an_image_as_a_file_is_an_image_under_any_name() -> None:
    assert read_observation({"state": STATE, "front": FILE}, ANY).encoded.keys() == {"front"}


@pytest.mark.parametrize("key", ["state", "prompt", "observation/joint_position"])
def test_an_image_as_a_file_is_nothing_else(key: str) -> None:
    with pytest.raises(ObservationError, match="a jpeg image") as caught:
        read_observation({key: FILE}, ANY)

    assert caught.value.key == key


def test_a_text_array_of_one_is_an_instruction() -> None:
    assert read_observation({"prompt": np.array("lift")}, ANY).prompt == "lift"


def test_what_nobody_knows_is_kept_aside() -> None:
    observation = read_observation({"state": STATE, "battery": 0.5, "a": {"b": 1}}, ANY)

    assert dict(observation.extra) == {"battery": 0.5, "a/b": 1}
