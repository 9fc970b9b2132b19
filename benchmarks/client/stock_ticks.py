# pyright: basic, reportMissingImports=false
"""LeRobot's unmodified RobotClient with an arm that notes when each command comes.

Runs in LeRobot's environment; ``bench_ticks.py --lerobot PYTHON`` starts it. Prints one line of
JSON: the instants of the commands in monotonic nanoseconds, and the client's counts.
"""

import argparse
import json
import os
import shutil
import sys
import threading
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from benchmarks.client.scripted_arm import ScriptedArm
from benchmarks.client.stock_client import WatchedClient, run
from lerobot.async_inference.configs import RobotClientConfig
from lerobot.robots.config import RobotConfig

JOINTS = tuple(f"joint_{number}.pos" for number in range(7))
CAMERAS = ("image", "wrist_image")


@RobotConfig.register_subclass("ticking_arm")
@dataclass
class TickingArmConfig(RobotConfig):
    """What it sees."""

    image_hz: float = 10.0
    side: int = 224
    seed: int = 7


class TickingArm(ScriptedArm):
    """The arm. Its cameras have a new picture so many times a second, and hand out the newest."""

    config_class = TickingArmConfig
    name = "ticking_arm"

    def __init__(self, config: TickingArmConfig) -> None:
        size = (config.side, config.side, 3)
        super().__init__(config, joints=JOINTS, cameras=dict.fromkeys(CAMERAS, size))
        random = np.random.default_rng(config.seed)
        self._frames = random.integers(0, 255, (8, 2, *size), dtype=np.uint8)
        self.came: list[int] = []
        self.observed = 0

    def get_observation(self) -> dict:
        """The joints and the newest pictures, at once."""
        self.observed += 1
        number = int(time.monotonic() * self.config.image_hz) % len(self._frames)
        pictures = dict(zip(CAMERAS, self._frames[number].copy(), strict=True))
        return {**dict.fromkeys(JOINTS, 0.0), **pictures}

    def send_action(self, action: dict) -> dict:
        """Take a command."""
        self.came.append(time.monotonic_ns())
        return action


def drive(asked: argparse.Namespace) -> dict:
    """Run the client for a while, from its first command on."""
    starved = 0

    def tick(has_action: bool) -> None:
        nonlocal starved
        came = client.robot.came
        starved += not has_action and bool(came)
        if len(came) == 1:
            threading.Timer(asked.seconds, client.shutdown_event.set).start()

    config = RobotClientConfig(
        policy_type="act",
        pretrained_name_or_path="echo",
        robot=TickingArmConfig(image_hz=asked.image_hz),
        actions_per_chunk=asked.actions_per_chunk,
        chunk_size_threshold=asked.threshold,
        server_address=asked.server,
        task="open the drawer",
        fps=asked.hz,
        aggregate_fn_name="latest_only",
    )
    client = WatchedClient(config, tick)
    run(client, config.task)
    return {
        "versions": {name: version(name) for name in ("lerobot", "torch", "grpcio")},
        "came": client.robot.came,
        "chunks": client.inferences,
        "observations": client.robot.observed,
        "starved_ticks": starved,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="tick jitter of LeRobot's client")
    parser.add_argument("--server", required=True)
    parser.add_argument("--hz", type=float, required=True)
    parser.add_argument("--image-hz", type=float, required=True)
    parser.add_argument("--threshold", type=float, required=True)
    parser.add_argument("--actions-per-chunk", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    with redirect_stdout(sys.stderr):
        said = drive(parser.parse_args())
    print(json.dumps(said))
    sys.stdout.flush()
    shutil.rmtree(Path.cwd())
    os._exit(0)


if __name__ == "__main__":
    main()
