"""A robot that asks a server and never waits for it. The arm is simulated; put yours in its place.

    takt serve --model echo
    python examples/robot_client.py 127.0.0.1:8000 --seconds 5 --log run.jsonl
    takt episode show run.jsonl

It needs what a robot computer has: Python 3.10, numpy, takt.client. Each part is explained in
``docs/how-to/drive-a-robot.md``.
"""

import argparse
import contextlib
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from takt.client import (
    Cameras,
    ControlLoop,
    EpisodeLog,
    Hooks,
    LoopSettings,
    LoopStatus,
    connect,
)
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import State
from takt.units import ms, seconds

JOINTS = 6
SETTINGS = LoopSettings(
    control_hz=60.0,
    policy_hz=30.0,
    merge="weighted_average",
    contract=ContractRules(max_action_age=ms(1500), max_start_jump=2.0, kept=(JOINTS - 1,)),
)


class SimulatedArm:
    """Follows every command at once, and has a camera that sees nothing."""

    def __init__(self) -> None:
        self.position = np.zeros(JOINTS, np.float32)

    def observe(self) -> dict[str, object]:
        """Joint angles, the last one the gripper's, and what to do."""
        return {"observation/state": self.position.copy(), "prompt": "open the drawer"}

    def look(self) -> dict[str, object]:
        """One camera image."""
        return {"observation/image": np.zeros((224, 224, 3), np.uint8)}

    def act(self, action: np.ndarray) -> None:
        """Go where the command says."""
        self.position = action.astype(np.float32)


def pose(seen: Mapping[str, object]) -> np.ndarray:
    """Where the arm is, in the units of an action."""
    return np.asarray(seen["observation/state"])


def main(address: str, *, duration_s: float, log: Path | None) -> LoopStatus:
    """Drive the arm for a while; how it went."""
    arm = SimulatedArm()
    with contextlib.ExitStack() as stack:
        head = {"robot": "arm-1"}
        episode = None if log is None else stack.enter_context(EpisodeLog(log, head=head))
        loop = stack.enter_context(
            ControlLoop(
                arm,
                partial(connect, address, robot="arm-1"),
                SETTINGS,
                hooks=Hooks(pose=pose),
                cameras=Cameras(arm.look, rate_hz=10.0),
                log=episode,
            )
        )
        # Unheard, either would end this program between two commands, the last one in force.
        for ending in (signal.SIGTERM, signal.SIGHUP):  # a service manager, a closed terminal
            signal.signal(ending, lambda number, frame: loop.stop())
        loop.start()  # nothing has moved before this line
        if not loop.wait_for(State.ACTIVE, State.STOPPED, timeout=seconds(10)):
            sys.exit(f"the robot did not start: {loop.status().last_failure}")
        # Your program goes on; the loop runs beside it.
        loop.wait_for(State.STOPPED, timeout=seconds(duration_s))
        return loop.status()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="drive a simulated arm by a server's policy")
    parser.add_argument("address", help="host:port of the server")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--log", type=Path, help="where to write the episode log")
    asked = parser.parse_args()
    found = main(asked.address, duration_s=asked.seconds, log=asked.log)
    sys.stdout.write(
        f"{found.state.value}: {found.executed} actions, {found.starved_ticks} starved ticks,"
        f" {found.answered} chunks, {found.overruns} over-runs of {found.ticks} ticks\n"
    )
