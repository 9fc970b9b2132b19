"""What a robot observes, in LeRobot's words."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.client.lerobot_values import features_of, values_of
from takt.errors import UsageError
from takt.wire.lerobot import decode_setup
from takt.wire.limits import Limits

GOLDEN = Path(__file__).parents[1] / "golden" / "lerobot"
ARM = {"a.pos": float, "b.pos": float, "front": (4, 5, 3)}
IMAGE = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)


def test_features_are_those_that_lerobots_own_client_declares() -> None:
    setup = decode_setup((GOLDEN / "setup_l044_two_cams_float.bin").read_bytes(), Limits())
    state = setup.features["observation.state"]
    cameras = {
        key.removeprefix("observation.images."): feature.shape
        for key, feature in setup.features.items()
        if feature.is_image
    }

    assert features_of({**dict.fromkeys(state.names or (), float), **cameras}) == setup.features


def test_a_camera_of_one_channel_measures_distances() -> None:
    assert features_of({"depth": (4, 5, 1)})["observation.images.depth"].is_depth


@pytest.mark.parametrize("kind", [int, (4, 5), (4, 5, 2), (0, 5, 3), (4.0, 5, 3), "float32"])
def test_what_is_neither_joint_nor_camera_is_refused_by_name(kind: object) -> None:
    with pytest.raises(UsageError, match=r"features\.front: expected float, or"):
        features_of({"front": kind})  # pyright: ignore[reportArgumentType]


def test_a_robot_without_joints_and_cameras_is_refused() -> None:
    with pytest.raises(UsageError, match="got none"):
        features_of({})


def test_what_was_declared_is_sent_in_that_order_and_nothing_else() -> None:
    seen = {"extra": 1, "front": IMAGE, "b.pos": 2, "a.pos": np.float32(1.5), "task": "fold"}

    values = values_of(seen, features_of(ARM))

    assert list(values) == ["a.pos", "b.pos", "front", "task"]
    assert (values["a.pos"], values["b.pos"], values["task"]) == (1.5, 2.0, "fold")
    assert values["front"] is IMAGE


@pytest.mark.parametrize("state", ["observation/state", "observation.state", "state"])
@pytest.mark.parametrize(
    "image",
    [f"{prefix}front" for prefix in ("observation/", "observation/images/", "observation.images.")],
)
def test_the_keys_of_other_protocols_are_understood(state: str, image: str) -> None:
    seen = {state: np.array([1.5, 2.0], np.float32), image: IMAGE, "prompt": "fold"}

    values = values_of(seen, features_of(ARM))

    assert {name: values[name] for name in ("a.pos", "b.pos")} == {"a.pos": 1.5, "b.pos": 2.0}
    assert values["front"] is IMAGE
    assert values["task"] == "fold"


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=9))
def test_a_whole_state_and_its_joints_say_the_same(state: list[float]) -> None:
    names = [f"joint_{number}.pos" for number in range(len(state))]
    features = features_of(dict.fromkeys(names, float))

    whole = values_of({"observation/state": np.array(state, np.float32)}, features)

    assert whole == values_of(dict(zip(names, state, strict=True)), features)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a.pos": None}, "a.pos: expected a number, got no such key"),
        ({"a.pos": "far"}, "a.pos: expected a number, got str"),
        ({"a.pos": np.zeros(2)}, "a.pos: expected a number, got ndarray"),
        ({"state": np.zeros(3)}, r"state: expected 2 numbers, got float64 of shape \(3,\)"),
        ({"front": None}, r"front: expected an image of shape \(4, 5, 3\), got no such key"),
        ({"front": [1]}, r"front: expected an image of shape \(4, 5, 3\), got list"),
        ({"front": IMAGE[:3]}, r"front: expected uint8 of shape \(4, 5, 3\), as in the handshake"),
        ({"front": IMAGE / 255}, "front: expected uint8 of shape .*, got float64"),
        ({"task": 3}, "task: expected text, got int"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key(change: dict[str, object], message: str) -> None:
    seen: dict[str, object] = {"a.pos": 1.0, "b.pos": 2.0, "front": IMAGE, **change}
    present = {key: value for key, value in seen.items() if value is not None}

    with pytest.raises(UsageError, match=f"^{message}"):
        values_of(present, features_of(ARM))
