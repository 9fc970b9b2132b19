# pyright: basic, reportMissingImports=false
"""A robot without hardware for LeRobot's client, which records what it is told to do.

Its first joint says which robot it is, its second counts its observations. Echoed by the server,
both come back in every action, so an action shows whose observation it was computed from, and
which. Runs in LeRobot's environment.
"""

import os
import time
from dataclasses import dataclass

import numpy as np
from benchmarks.client.scripted_arm import ScriptedArm
from lerobot.robots.config import RobotConfig

__all__ = ["MockArm", "MockArmConfig"]

JOINTS = ("identity.pos", "count.pos", "a.pos", "b.pos", "c.pos", "gripper.pos")


@RobotConfig.register_subclass("mock_arm")
@dataclass
class MockArmConfig(RobotConfig):
    """How the arm behaves."""

    identity: float = 0.0
    """Value of its first joint."""
    scale: float = 1.0
    """Size of the other joints' values: 1 for degrees, 0.01 for radians."""
    fail_until: int = 0
    """So many observations make the server's inference fail."""
    side: int = 0
    """Width of the images of its two cameras; 0: it has none."""


class MockArm(ScriptedArm):
    """The arm."""

    config_class = MockArmConfig
    name = "mock_arm"

    def __init__(self, config: MockArmConfig) -> None:
        size = (config.side * 3 // 4, config.side, 3)
        cameras = {"front": size, "wrist": size} if config.side else {}
        super().__init__(config, joints=JOINTS, cameras=cameras)
        self.num_observations = 0
        self.executed: list[tuple[float, list[float]]] = []
        """When each action was executed, and its values."""

    def get_observation(self) -> dict:
        self.num_observations += 1
        is_failing = self.num_observations <= self.config.fail_until
        values: dict = dict.fromkeys(JOINTS, 0.25 * self.config.scale)
        values["identity.pos"] = -31337.0 if is_failing else self.config.identity
        values["count.pos"] = float(self.num_observations) * self.config.scale
        for name, feature in self.observation_features.items():
            if isinstance(feature, tuple):
                values[name] = np.full(feature, self.num_observations % 256, np.uint8)
        return values

    def send_action(self, action: dict) -> dict:
        if not self.executed:
            os.write(1, b"moving\n")
        self.executed.append((time.monotonic(), [action[joint] for joint in JOINTS]))
        return action
