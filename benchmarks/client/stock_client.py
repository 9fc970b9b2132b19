# pyright: basic, reportMissingImports=false
"""LeRobot's own RobotClient, watched. Runs in LeRobot's environment.

Nothing of what the client does is changed: two of its methods also note that they were called, once
per control tick and once per chunk. Its log goes to standard error, and the files that it writes to
a directory of its own.

Start reading at :func:`run`.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable

# The client writes a log file below the current directory as soon as it is imported.
os.chdir(tempfile.mkdtemp(prefix="lerobot-"))

from lerobot.async_inference.configs import RobotClientConfig  # noqa: E402
from lerobot.async_inference.robot_client import RobotClient  # noqa: E402

__all__ = ["WatchedClient", "run"]

_JOIN_S = 10.0


class WatchedClient(RobotClient):
    """See the module's docstring.

    Args:
        config: LeRobot's own.
        on_tick: Called at the beginning of every control tick, with whether there is an action.
    """

    def __init__(self, config: RobotClientConfig, on_tick: Callable[[bool], None]) -> None:
        super().__init__(config)
        self.ticks: list[int] = []
        """Instant at which each tick began, in monotonic nanoseconds."""
        self.inferences = 0
        """Chunks that came."""
        self._on_tick = on_tick

    def actions_available(self) -> bool:
        """LeRobot's answer; its control loop asks once per tick."""
        self.ticks.append(time.monotonic_ns())
        is_there = super().actions_available()
        self._on_tick(is_there)
        return is_there

    def _aggregate_action_queues(self, *given: object, **named: object) -> None:
        self.inferences += 1
        super()._aggregate_action_queues(*given, **named)


def run(client: WatchedClient, task: str) -> None:
    """Drive the client's robot in this thread until its ``shutdown_event`` is set.

    As ``robot_client.async_client`` does it.
    """
    if not client.start():
        raise SystemExit("the server refused the robot; see the client's log above")
    receiver = threading.Thread(target=client.receive_actions, daemon=True)
    receiver.start()
    try:
        client.control_loop(task=task)
    finally:
        client.stop()
        receiver.join(_JOIN_S)
