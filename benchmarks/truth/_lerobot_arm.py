# pyright: basic, reportMissingImports=false
"""A robot without hardware for LeRobot's client: one camera and the four joints that `mini` takes.

Its last joint jumps with every observation, because LeRobot's server drops observations whose
joints, all together, have moved by less than one. Runs in LeRobot's environment.
"""

from dataclasses import dataclass

import numpy as np
from lerobot.robots.config import RobotConfig
from lerobot.robots.robot import Robot

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


class MiniArm(Robot):
    """The arm."""

    config_class = MiniArmConfig
    name = "mini_arm"

    def __init__(self, config: MiniArmConfig) -> None:
        super().__init__(config)
        with np.load(config.scene) as scene:
            self._image = scene["images"][config.number]
            self._state = scene["states"][config.number].tolist()
        self._draw = np.random.default_rng(config.number)
        self._is_connected = False

    @property
    def observation_features(self) -> dict:
        return {**dict.fromkeys(JOINTS, float), "image": (SIDE, SIDE, 3)}

    @property
    def action_features(self) -> dict:
        return dict.fromkeys(JOINTS, float)

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    @property
    def is_calibrated(self) -> bool:
        return True

    def connect(self, calibrate: bool = True) -> None:
        del calibrate
        self._is_connected = True

    def calibrate(self) -> None:
        pass

    def configure(self) -> None:
        pass

    def get_observation(self) -> dict:
        state = dict(zip(JOINTS, self._state, strict=True))
        state[JOINTS[-1]] += float(self._draw.uniform(-JUMP, JUMP))
        return {**state, "image": self._image}

    def send_action(self, action: dict) -> dict:
        return action

    def disconnect(self) -> None:
        self._is_connected = False
