# pyright: basic, reportMissingImports=false
"""LeRobot's unmodified RobotClient solves a Meta-World task through a server.

Runs in an environment with LeRobot 0.4, Meta-World and websockets (``make interop`` makes one),
against the LeRobot door of ``takt serve --model mini --lerobot PORT``:

    .interop/bin/python benchmarks/client/stock_robot.py --server HOST:PORT --task drawer-open-v3

The robot is a LeRobot ``Robot`` around the environment that `takt eval` uses, pictures included.
The environment is stepped once per ``send_action``, and once in a tick without an action, with an
arm that holds still: time passes there, too. The picture is rendered in ``get_observation``. Both
are in the thread of the client's control loop, so choose a tick several times as long.

One episode per start; each prints a line of JSON:

- ``task``, ``seed``, ``start``: what was done;
- ``solved``; ``executed``: actions until then; ``ticks``: control periods until then, those that
  the client missed included; ``wall_s``: from the first tick to the last;
- ``first_action_tick``; ``starved``: ticks without an action after it;
- ``inferences``: chunks that came; ``observations``: pictures taken and sent;
- ``queue``: actions queued before each that was executed;
- ``tick_ms``: from each tick to the next; ``jerk_m_s3``: root of the mean square of the hand's.

A first connection, not counted, waits for one chunk: the first answer of a server is a slow one.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from benchmarks.client.async_robot import GRIPPER, hold, jerk_of
from benchmarks.client.scripted_arm import ScriptedArm
from benchmarks.client.stock_client import WatchedClient, run
from lerobot.async_inference.configs import AGGREGATE_FUNCTIONS, RobotClientConfig
from lerobot.robots.config import RobotConfig

from takt.cli.evaluating.metaworld import IMAGE_SIZE, INSTRUCTIONS, MetaworldTask

STATE = ("gripper_x", "gripper_y", "gripper_z", "gripper_opening")
ACTION = ("move_x", "move_y", "move_z", "gripper_effort")
CAMERA = "image"
NUM_ACTIONS = 16


class World:
    """An open task, and what was done to it since its last start."""

    def __init__(self, task: str, seed: int) -> None:
        self.task = MetaworldTask(task, seed=seed)
        self.begin(0)

    def begin(self, start: int) -> None:
        """Go to a start."""
        self.task.reset(start)
        self.when_solved: Callable[[], None] = lambda: None
        self.is_solved = False
        self.executed = self.observed = 0
        self.positions: list[np.ndarray] = []
        self._gripper = 0.0

    def act(self, action: np.ndarray) -> None:
        """Carry out an action."""
        self.executed += 1
        self._gripper = float(action[GRIPPER])
        self._step(action)

    def wait(self) -> None:
        """Let a tick without an action pass."""
        self._step(hold(len(ACTION), self._gripper))

    def _step(self, action: np.ndarray) -> None:
        if self.task.step(action):
            self.is_solved = True
            self.when_solved()
        if self.executed:
            self.positions.append(self.task.vector[:3].copy())


WORLDS: dict[str, World] = {}
"""Open tasks by name: a LeRobot configuration holds plain values alone."""


@RobotConfig.register_subclass("metaworld_arm")
@dataclass
class MetaworldArmConfig(RobotConfig):
    """Which task it is in."""

    task: str = ""


class MetaworldArm(ScriptedArm):
    """The arm of a Meta-World task, as a robot of LeRobot's; the task stays open behind it."""

    config_class = MetaworldArmConfig
    name = "metaworld_arm"

    def __init__(self, config: MetaworldArmConfig) -> None:
        cameras = {CAMERA: (IMAGE_SIZE, IMAGE_SIZE, 3)}
        super().__init__(config, joints=STATE, cameras=cameras, commands=ACTION)
        self._world = WORLDS[config.task]

    def get_observation(self) -> dict:
        """Render the picture and read the gripper."""
        self._world.observed += 1
        state = dict(zip(STATE, map(float, self._world.task.state()), strict=True))
        return {**state, CAMERA: self._world.task.image()}

    def send_action(self, action: dict) -> dict:
        """Step the environment."""
        self._world.act(np.array([action[name] for name in ACTION]))
        return action


class Episode:
    """One episode of the client.

    Args:
        asked: The command line.
        world: At its start.
        is_warm_up: End with the first chunk.
    """

    def __init__(self, asked: argparse.Namespace, world: World, *, is_warm_up: bool) -> None:
        self._world = world
        self._most_ticks = asked.ticks
        self._is_warm_up = is_warm_up
        self._first_action: int | None = None
        self._starved = 0
        config = RobotClientConfig(
            policy_type="act",  # LeRobot's client knows no `mini`; Takt does not look
            pretrained_name_or_path=asked.model,
            robot=MetaworldArmConfig(task=asked.task),
            actions_per_chunk=asked.actions_per_chunk,
            chunk_size_threshold=asked.threshold,
            server_address=asked.server,
            task=asked.instruction or INSTRUCTIONS[asked.task][0],
            fps=asked.hz,
            aggregate_fn_name=asked.aggregate,
        )
        self._period_ns = 1e9 / asked.hz
        self._client = WatchedClient(config, self._tick)
        world.when_solved = self._client.shutdown_event.set

    def run(self) -> dict:
        """Drive until the task is solved or the time is over."""
        run(self._client, self._client.config.task)
        ticks = np.array(self._client.ticks)
        wall_ns = int(ticks[-1] - ticks[0])
        return {
            "solved": self._world.is_solved,
            "executed": self._world.executed,
            "ticks": max(len(ticks), round(wall_ns / self._period_ns)),
            "wall_s": round(wall_ns / 1e9, 3),
            "first_action_tick": self._first_action,
            "starved": self._starved,
            "inferences": self._client.inferences,
            "observations": self._world.observed,
            "queue": self._client.action_queue_size,
            "tick_ms": [round(float(gap) / 1e6, 3) for gap in np.diff(ticks)],
            "jerk_m_s3": jerk_of(self._world.positions, round(self._period_ns)),
        }

    def _tick(self, has_action: bool) -> None:
        """A tick begins."""
        done = len(self._client.ticks) - 1
        if done + 1 >= self._most_ticks or (self._is_warm_up and self._client.inferences):
            self._client.shutdown_event.set()
        if has_action:
            self._first_action = done if self._first_action is None else self._first_action
            return
        self._starved += self._first_action is not None
        self._world.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="LeRobot's client in Meta-World")
    parser.add_argument("--server", required=True, help="host:port of a LeRobot door")
    parser.add_argument("--task", required=True, choices=sorted(INSTRUCTIONS))
    parser.add_argument("--instruction", help="the usual one of the task by default")
    parser.add_argument("--model", default="mini", help="what the server calls the policy")
    parser.add_argument("--seed", type=int, default=3, help="of starts and goals")
    parser.add_argument("--starts", type=int, default=1, help="number of episodes")
    parser.add_argument("--first-start", type=int, default=0, help="start of the first of them")
    parser.add_argument("--hz", type=float, default=16.0, help="1 / environment_dt")
    parser.add_argument("--ticks", type=int, default=480, help="after which it is not solved")
    parser.add_argument("--threshold", type=float, default=0.7, help="LeRobot's g")
    parser.add_argument(
        "--aggregate", choices=sorted(AGGREGATE_FUNCTIONS), default="weighted_average"
    )
    parser.add_argument("--actions-per-chunk", type=int, default=NUM_ACTIONS)
    asked = parser.parse_args()
    with redirect_stdout(sys.stderr):
        world = WORLDS[asked.task] = World(asked.task, asked.seed)
        Episode(asked, world, is_warm_up=True).run()
    for start in range(asked.first_start, asked.first_start + asked.starts):
        with redirect_stdout(sys.stderr):
            world.begin(start)
            said = Episode(asked, world, is_warm_up=False).run()
        print(json.dumps({"task": asked.task, "seed": asked.seed, "start": start, **said}))
        sys.stdout.flush()
    world.task.close()
    shutil.rmtree(Path.cwd())
    os._exit(0)  # threads of gRPC and of the renderer need not agree on how to end


if __name__ == "__main__":
    main()
