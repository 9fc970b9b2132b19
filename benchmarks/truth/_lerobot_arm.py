# pyright: basic, reportMissingImports=false
"""A robot without hardware for LeRobot's client: one camera and the four joints that `mini` takes.

Its last joint jumps with every observation, because LeRobot's server drops observations whose
joints, all together, have moved by less than one. Runs in LeRobot's environment.
"""

from dataclasses import dataclass

import numpy as np
from benchmarks.client.scripted_arm import ScriptedArm
from lerobot.robots.config import RobotConfig

__all__ = ["JOINTS", "MiniArm", "MiniArmConfig"]

JOINTS = ("gripper_x", "gripper_y", "gripper_z", "gripper_opening")
SIDE = 112
JUMP = 4.0


@RobotConfig.register_subclass("mini_arm")
@dataclass
class MiniArmConfig(RobotConfig):
    """Which robot it is."""

    scene: str = ""
    """File with the robots' observations."""
    number: int = 0


class MiniArm(ScriptedArm):
    """The arm."""

    config_class = MiniArmConfig
    name = "mini_arm"

    def __init__(self, config: MiniArmConfig) -> None:
        super().__init__(config, joints=JOINTS, cameras={"image": (SIDE, SIDE, 3)})
        with np.load(config.scene) as scene:
            self._image = scene["images"][config.number]
            self._state = scene["states"][config.number].tolist()
        self._draw = np.random.default_rng(config.number)

    def get_observation(self) -> dict:
        state = dict(zip(JOINTS, self._state, strict=True))
        state[JOINTS[-1]] += float(self._draw.uniform(-JUMP, JUMP))
        return {**state, "image": self._image}

    def send_action(self, action: dict) -> dict:
        return action
