"""Robots that a control loop drives: what they may tell of themselves, and adapters.

A robot needs two methods, :class:`~takt.client.loop_settings.Robot`. One that also names the
components of its actions is compared with the server's model, see
:mod:`~takt.client.robots.described`. The adapters import neither Gymnasium nor LeRobot; they take
the objects as they are.
"""

from takt.client.robots.described import (
    Axis,
    DescribedRobot,
    RobotDescription,
    RobotMismatchError,
    check_fit,
)
from takt.client.robots.gymnasium import RENDER, GymnasiumEnv, GymnasiumRobot
from takt.client.robots.lerobot import (
    LeRobotCamera,
    LeRobotDevice,
    LeRobotRobot,
    camera_reader,
    lerobot_units,
)

__all__ = [
    "RENDER",
    "Axis",
    "DescribedRobot",
    "GymnasiumEnv",
    "GymnasiumRobot",
    "LeRobotCamera",
    "LeRobotDevice",
    "LeRobotRobot",
    "RobotDescription",
    "RobotMismatchError",
    "camera_reader",
    "check_fit",
    "lerobot_units",
]
