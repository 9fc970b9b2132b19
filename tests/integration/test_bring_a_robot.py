"""The programs of ``docs/how-to/bring-a-robot.md`` run as they stand there, beside stand-ins."""

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from takt.client import ControlLoop, InProcess, LoopSettings
from takt.client.robots.described import description_of
from takt.robot.contract_table import State
from takt.units import seconds

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "bring-a-robot.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


class PushT:
    action_space = SimpleNamespace(shape=(2,), dtype=np.dtype(np.float32))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        return np.zeros(5), {}

    def step(self, action: Any, /) -> Any:  # noqa: ANN401
        return np.zeros(5), 0.0, False, False, {}

    def render(self) -> Any:  # noqa: ANN401
        return np.zeros((8, 8, 3), np.uint8)


class Device:
    """A follower arm, and a camera."""

    def __init__(self, config: object) -> None:
        self.is_connected = False
        self.action_features = {"shoulder_pan.pos": float, "gripper.pos": float}
        self.observation_features = self.action_features

    def connect(self) -> None:
        self.is_connected = True

    def get_observation(self) -> dict[str, float]:
        return {"shoulder_pan.pos": 1.0, "gripper.pos": 2.0}

    def send_action(self, action: dict[str, Any], /) -> object:
        return action

    def async_read(self) -> Any:  # noqa: ANN401
        return np.zeros((8, 8, 3), np.uint8)


def module(name: str, **names: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(names)
    return made


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gymnasium and LeRobot as far as the page uses them."""
    for stand_in in (
        module("gymnasium", make=lambda name, render_mode: PushT()),
        module("lerobot"),
        module("lerobot.cameras"),
        module("lerobot.cameras.opencv", OpenCVCamera=Device, OpenCVCameraConfig=dict),
        module("lerobot.robots"),
        module("lerobot.robots.so_follower", SO101Follower=Device, SO101FollowerConfig=dict),
    ):
        monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)


def run(program: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    exec(program, names)
    return names


def test_the_page_has_programs() -> None:
    assert len(PROGRAMS) == 4


def test_the_arm_says_what_it_is_and_is_driven() -> None:
    arm = run(PROGRAMS[0])["Arm"]()

    told = description_of(arm)
    assert told is not None
    assert [axis.name for axis in told.action] == ["shoulder", "elbow"]
    with ControlLoop(arm, lambda: InProcess(lambda seen: np.zeros((8, 2))), LoopSettings()) as loop:
        loop.start()
        assert loop.wait_for(State.ACTIVE, timeout=seconds(20))


@pytest.mark.usefixtures("stand_ins")
def test_the_environment_is_seen_by_the_policys_keys() -> None:
    robot = run(PROGRAMS[1])["robot"]

    robot.act(np.zeros(2))

    assert set(robot.observe()) == {"observation/state", "observation/image", "prompt"}


@pytest.mark.usefixtures("stand_ins")
def test_the_lerobot_arm_is_seen_beside_its_camera() -> None:
    names = run(PROGRAMS[2])

    cameras, arm = names["cameras"], names["arm"]
    cameras.read_once()

    np.testing.assert_array_equal(arm.pose(arm.observe()), [1.0, 2.0])
    assert [axis.unit for axis in arm.describe().action] == ["deg", "0..100"]
    assert set(cameras.newest.values) == {"observation/images/front"}


def test_the_torch_blend_mixes_arrays() -> None:
    pytest.importorskip("torch")

    merge: Any = run(PROGRAMS[3])["settings"].merge

    np.testing.assert_allclose(merge(np.zeros(2, np.float32), np.ones(2, np.float32)), [0.7, 0.7])
