"""How evenly does the control loop tick while it sends images to a server?

Why it matters: jitter in the commands is jitter in the robot, and a loop that misses ticks moves in
steps. Budget: no instant without a tick, and commands at 60 Hz leave within 2 ms of their instants
at p99, with two 224 x 224 images at 10 Hz and an episode log.

    python benchmarks/client/bench_ticks.py

`takt serve --model echo --latency-ms 100` in processes of its own; the robot's side, with control
thread, sender, cameras and log, is one Python process on the same computer, which is the harder
case: a robot's computer has nothing else to do. Each command's lateness counts from the instant its
tick was scheduled for until the robot has the command.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from _record import RESULTS, circumstances, write
from takt.cli.driving.server_process import serving
from takt.client import Cameras, ControlLoop, EpisodeLog, LoopSettings, LoopStatus, connect
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import State
from takt.units import SECOND, Nanos, seconds, to_ms

SEED = 7
CONTROL_HZ, IMAGE_HZ = 60.0, 10.0
SIZE = (224, 224, 3)
BUDGET_P99_MS = 2.0
PATIENCE = seconds(30)


class Arm:
    """Notes when each command came."""

    def __init__(self) -> None:
        self.came: list[Nanos] = []

    def observe(self) -> Mapping[str, object]:
        """Seven joints."""
        return {"observation/state": np.zeros(7, np.float32), "prompt": "open the drawer"}

    def act(self, action: np.ndarray, /) -> None:
        """Take a command."""
        del action
        self.came.append(time.monotonic_ns())


def drive(address: str, folder: Path, duration_s: float) -> tuple[list[Nanos], LoopStatus]:
    """Run the loop for a while."""
    arm = Arm()
    random = np.random.default_rng(SEED)
    frames = random.integers(0, 255, (8, 2, *SIZE), dtype=np.uint8)
    numbers = iter(range(1 << 62))

    def look() -> dict[str, object]:
        left, right = frames[next(numbers) % len(frames)].copy()
        return {"observation/image": left, "observation/wrist_image": right}

    settings = LoopSettings(control_hz=CONTROL_HZ, contract=ContractRules(t_stop=None))
    with (
        EpisodeLog(folder / "ticks.jsonl") as log,
        ControlLoop(
            arm,
            partial(connect, address),
            settings,
            cameras=Cameras(look, rate_hz=IMAGE_HZ),
            log=log,
        ) as loop,
    ):
        loop.start()
        if not loop.wait_for(State.ACTIVE, timeout=PATIENCE):
            raise SystemExit(f"the robot did not start: {loop.status()}")
        threading.Event().wait(duration_s)
        # Closing the loop sends one command more, at no tick.
        return list(arm.came), loop.status()


def lateness_ms(came: list[Nanos]) -> np.ndarray:
    """How long after its instant each command came, the earliest one being on time."""
    period = SECOND / CONTROL_HZ
    since = np.array(came, np.float64) - came[0]
    offsets = since - np.round(since / period) * period
    # Instants lie where the earliest command of the run lies.
    return (offsets - offsets.min()) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description="tick jitter with images")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true", help="5 seconds")
    parser.add_argument("--out", type=Path, help="where to write the result")
    asked = parser.parse_args()
    duration_s = 5.0 if asked.quick else asked.seconds
    options = ["--model", "echo", "--openpi", "0", "--latency-ms", "100"]
    with tempfile.TemporaryDirectory() as folder, serving(options) as server:
        came, status = drive(server.wait_until_ready(PATIENCE), Path(folder), duration_s)
    late = lateness_ms(came)
    cuts = {f"p{cut}_ms": round(float(np.percentile(late, cut)), 3) for cut in (50, 99, 99.9)}
    cuts["max_ms"] = round(float(late.max()), 3)
    missed: list[str] = []
    if cuts["p99_ms"] > BUDGET_P99_MS:
        missed.append(f"lateness p99 {cuts['p99_ms']} > {BUDGET_P99_MS} ms")
    if status.skipped_ticks:
        missed.append(f"{status.skipped_ticks} instants without a tick")
    print(
        f"{len(late)} commands at {CONTROL_HZ:g} Hz: late p50 {cuts['p50_ms']}"
        f" p99 {cuts['p99_ms']} max {cuts['max_ms']} ms; {status.overruns} over-runs,"
        f" {status.skipped_ticks} missed of {status.ticks}; {status.answered} chunks,"
        f" {status.starved_ticks} starved ticks"
    )
    for target in missed:
        print(f"missed: {target}")
    result: dict[str, Any] = {
        "circumstances": circumstances(seed=SEED, packages=["numpy", "websockets"]),
        "control_hz": CONTROL_HZ,
        "image_hz": IMAGE_HZ,
        "images": [list(SIZE)] * 2,
        "seconds": duration_s,
        "commands": len(late),
        "late": cuts,
        "ticks": status.ticks,
        "overruns": status.overruns,
        "missed_ticks": status.skipped_ticks,
        "starved_ticks": status.starved_ticks,
        "chunks": status.answered,
        "round_trip_ms": None if status.round_trip is None else to_ms(status.round_trip),
        "failures": dict(status.failures),
        "log_dropped": status.log_dropped,
        "missed": missed,
    }
    out = asked.out or (None if asked.quick else RESULTS / "ticks.json")
    if out is not None:
        write(out, result)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
