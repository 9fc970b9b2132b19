# pyright: basic, reportMissingImports=false
"""A robot of LeRobot's without hardware: what all those have in common that LeRobot's client drives
in benchmarks and tests. Runs in LeRobot's environment.

A kind of it says what it sees and what becomes of an action. LeRobot looks for a robot beside its
configuration, under the name of it without ``Config``, and only in a module that lies in no
package: in a script, or in a file that is imported from the folder it lies in.
"""

from collections.abc import Iterable, Mapping

from lerobot.robots.config import RobotConfig
from lerobot.robots.robot import Robot

__all__ = ["ScriptedArm"]


class ScriptedArm(Robot):
    """See the module's docstring; ``get_observation`` and ``send_action`` are the kind's own.

    Args:
        config: LeRobot's own, of the kind.
        joints: What it sees beside pictures, a number each.
        cameras: Height, width and channels of its pictures.
        commands: What an action has, a number each; the joints unless given.
    """

    def __init__(
        self,
        config: RobotConfig,
        *,
        joints: Iterable[str],
        cameras: Mapping[str, tuple[int, int, int]],
        commands: Iterable[str] | None = None,
    ) -> None:
        super().__init__(config)
        self.config = config
        numbers = dict.fromkeys(joints, float)
        self._observation_features = {**numbers, **cameras}
        self._action_features = numbers if commands is None else dict.fromkeys(commands, float)
        self._is_connected = False

    @property
    def observation_features(self) -> dict:
        """Joints, then cameras."""
        return self._observation_features

    @property
    def action_features(self) -> dict:
        """Commands."""
        return self._action_features

    @property
    def is_connected(self) -> bool:
        """Whether :meth:`connect` was called."""
        return self._is_connected

    @property
    def is_calibrated(self) -> bool:
        """There is nothing to calibrate."""
        return True

    def connect(self, calibrate: bool = True) -> None:
        """Be connected."""
        del calibrate
        self._is_connected = True

    def calibrate(self) -> None:
        """Do nothing."""

    def configure(self) -> None:
        """Do nothing."""

    def disconnect(self) -> None:
        """Be disconnected."""
        self._is_connected = False
