"""The programs of ``docs/how-to/move-from-lerobot.md`` run as they stand there."""

import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from takt.cli.driving.server_process import ServerProcess, serving
from takt.client.episode import read_episode
from takt.units import seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "move-from-lerobot.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
JOINTS = ("shoulder_pan.pos", "elbow_flex.pos", "gripper.pos")


class Device:
    """What the page builds with LeRobot, without LeRobot."""

    is_connected = True
    observation_features = dict.fromkeys(JOINTS, float)
    action_features = dict.fromkeys(JOINTS, float)

    def __init__(self) -> None:
        self.position: dict[str, Any] = dict.fromkeys(JOINTS, 0.0)

    def get_observation(self) -> Mapping[str, Any]:
        return self.position

    def send_action(self, action: dict[str, Any]) -> object:
        self.position = action
        return action


class Camera:
    def async_read(self) -> np.ndarray:
        return np.zeros((480, 640, 3), np.uint8)


def door(server: ServerProcess, name: str) -> str:
    """Where a door listens. The LeRobot door may do so a moment after the server is ready."""
    while not (found := [event for event in server.events if event.get("door") == name]):
        threading.Event().wait(0.02)
    return f"{found[0]['host']}:{found[0]['port']}"


def test_one_program_drives_the_robot_through_both_doors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(PROGRAMS) == 2
    assert "gpu-host:8080" in PROGRAMS[0]
    assert "gpu-host:8000" in PROGRAMS[1]
    options = ["--model", "fold=echo", "--alias", "fold=my-team/fold"]
    options += ["--slo-ms", "30000", "--hang-ms", "30000"]  # a slow computer answers late
    names: dict[str, Any] = {"device": Device(), "front": Camera()}
    with serving([*options, "--openpi", "0", "--lerobot", "0"]) as server:
        server.wait_until_ready(seconds(120))
        for program, model in zip(PROGRAMS, ("my-team/fold", "fold"), strict=True):
            here = program.replace("gpu-host:8080", door(server, "lerobot"))
            exec(here.replace("gpu-host:8000", door(server, "openpi")), names)
            episode = read_episode(tmp_path / "fold.jsonl")

            assert "failures={}" in capsys.readouterr().out
            assert len(episode.of("action")) > 10
            assert [event["model"] for event in episode.of("connected")] == [model]
