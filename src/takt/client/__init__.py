"""Asks a Takt server, or any openpi server, for action chunks from a robot's computer.

:func:`connect` opens a connection that asks and waits. :class:`BackgroundClient` asks beside a
control loop of your own, which never waits. :class:`ControlLoop` is such a loop, with rules for a
server that is late or gone, and :class:`EpisodeLog` notes what it did. Needs numpy and websockets,
Python 3.10 or later; it moves no robot before you start it, installs no signal handler and
configures no logger.

Start reading at :class:`~takt.client.connection.Connection`, or for a robot at
:class:`~takt.client.loop.ControlLoop`.
"""

from takt.client.answer import Answer
from takt.client.background import BackgroundClient
from takt.client.backoff import Backoff
from takt.client.cameras import Cameras
from takt.client.connection import Connection, connect
from takt.client.episode_log import EpisodeLog
from takt.client.errors import ConnectionLostError
from takt.client.exchange import ExchangeStatus
from takt.client.from_torch import from_torch
from takt.client.image_settings import ImageSettings
from takt.client.in_process import InProcess
from takt.client.leftover import Leftover
from takt.client.loop import ControlLoop, LoopStatus
from takt.client.loop_settings import Hooks, LoopSettings, Robot
from takt.client.robots import (
    Axis,
    DescribedRobot,
    GymnasiumRobot,
    LeRobotRobot,
    RobotDescription,
    RobotMismatchError,
)

__all__ = [
    "Answer",
    "Axis",
    "BackgroundClient",
    "Backoff",
    "Cameras",
    "Connection",
    "ConnectionLostError",
    "ControlLoop",
    "DescribedRobot",
    "EpisodeLog",
    "ExchangeStatus",
    "GymnasiumRobot",
    "Hooks",
    "ImageSettings",
    "InProcess",
    "LeRobotRobot",
    "Leftover",
    "LoopSettings",
    "LoopStatus",
    "Robot",
    "RobotDescription",
    "RobotMismatchError",
    "connect",
    "from_torch",
]
