"""How evenly does the control loop tick while it sends images to a server?

Why it matters: jitter in the commands is jitter in the robot, and a loop that misses ticks moves in
steps. Budget: no instant without a tick, and commands at 60 Hz leave within 2 ms of their instants
at p99, with two 224 x 224 images at 10 Hz and an episode log.

    python benchmarks/client/bench_ticks.py

`takt serve --model echo --latency-ms 100` in processes of its own; the robot's side, with control
thread, sender, cameras and log, is one Python process on the same computer, which is the harder
case: a robot's computer has nothing else to do. Each command's lateness counts from the instant its
tick was scheduled for until the robot has the command.

    python benchmarks/client/bench_ticks.py --lerobot LEROBOT_ENV/bin/python

runs LeRobot's own client (0.4, unmodified) in turns with ours, against the LeRobot door of the same
server, with the same joints and images (``stock_ticks.py``; ``make interop`` makes an environment).
Its loop has no instants to be late for: it works, then sleeps the rest of a period. So both are
compared by what a robot sees, the time from one command to the next. It has no rate of its own for
images either: it takes a picture whenever it sends an observation, at every tick from the threshold
on until the chunk is here. To be fair its cameras hand out the newest picture of a 10 Hz stream at
once, and both clients ask at half of a chunk and take the newest chunk as it is.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from _record import RESULTS, circumstances, write
from takt.cli.driving.server_process import ServerProcess, serving
from takt.client import Cameras, ControlLoop, EpisodeLog, LoopSettings, LoopStatus, connect
from takt.client.pacing import period_of, sleep
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import State
from takt.units import Nanos, seconds, to_ms

SEED = 7
CONTROL_HZ, IMAGE_HZ = 60.0, 10.0
SIZE = (224, 224, 3)
BUDGET_P99_MS = 2.0
PATIENCE = seconds(30)
STOCK = Path(__file__).with_name("stock_ticks.py")
STOCK_STARTING_S = 120.0
"""Importing LeRobot and torch takes this long on a busy computer."""
THRESHOLD, ACTIONS_PER_CHUNK = 0.5, 50


class Instants:
    """Lets a loop wait as it would, and notes the instant its ticks are scheduled for."""

    def __init__(self) -> None:
        self.noted: list[Nanos] = []

    def wait(self, duration: Nanos) -> None:
        """What a loop is given to wait with."""
        self.noted.append(time.monotonic_ns() + duration)
        sleep(duration)

    def late_ms(self, came: list[Nanos]) -> np.ndarray:
        """How long after its instant each command came; after a whole period it is the next's."""
        period = period_of(CONTROL_HZ, "control_hz")
        noted = np.array(self.noted)
        # The clock was read a moment after the loop read it, so the earliest note is the truest.
        off = (noted - noted[0] + period // 2) % period - period // 2
        return (np.array(came) - noted[0] - off.min()) % period / 1e6


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


class Driven(NamedTuple):
    """One run of our loop."""

    came: list[Nanos]
    late_ms: np.ndarray
    status: LoopStatus


def drive(address: str, folder: Path, duration_s: float) -> Driven:
    """Run the loop for a while."""
    arm, instants = Arm(), Instants()
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
            wait=instants.wait,
        ) as loop,
    ):
        loop.start()
        if not loop.wait_for(State.ACTIVE, timeout=PATIENCE):
            raise SystemExit(f"the robot did not start: {loop.status()}")
        threading.Event().wait(duration_s)
        # Closing the loop sends one command more, at no tick.
        came = list(arm.came)
        return Driven(came, instants.late_ms(came), loop.status())


def drive_stock(python: Path, server: ServerProcess, duration_s: float) -> dict[str, Any]:
    """Run LeRobot's client for a while; when its commands came, and its counts."""
    options = {
        "--server": server.wait_for_door("lerobot", PATIENCE),
        "--hz": CONTROL_HZ,
        "--image-hz": IMAGE_HZ,
        "--threshold": THRESHOLD,
        "--actions-per-chunk": ACTIONS_PER_CHUNK,
        "--seconds": duration_s,
    }
    command = [str(python), str(STOCK), *(str(part) for item in options.items() for part in item)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=STOCK_STARTING_S + duration_s,
    )
    if done.returncode:
        raise SystemExit(f"{STOCK.name} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def cuts_ms(values_ms: np.ndarray) -> dict[str, float]:
    """Quantiles."""
    cuts = {f"p{cut}_ms": round(float(np.percentile(values_ms, cut)), 3) for cut in (50, 99, 99.9)}
    return {**cuts, "max_ms": round(float(values_ms.max()), 3)}


def gaps(rounds: list[list[Nanos]]) -> dict[str, Any]:
    """What a robot sees of the ticks: the time from each command to the next, over all rounds."""
    between = np.concatenate([np.diff(came) for came in rounds]) / 1e6
    off = np.abs(between - 1e3 / CONTROL_HZ)
    return {
        "commands": sum(map(len, rounds)),
        "commands_per_s": round(1e3 / float(between.mean()), 3),
        "gap": cuts_ms(between),
        "off_the_period": cuts_ms(off),
        "off_the_period_p99_by_round_ms": [
            round(float(np.percentile(np.abs(np.diff(came) / 1e6 - 1e3 / CONTROL_HZ), 99)), 3)
            for came in rounds
        ],
    }


def stock_result(stock: list[dict[str, Any]]) -> dict[str, Any]:
    """LeRobot's client in the same words."""
    found = gaps([run["came"] for run in stock])
    off = found["off_the_period"]
    print(
        f"LeRobot's client: {found['commands_per_s']} commands a second, time between two of them"
        f" off the period by p50 {off['p50_ms']} p99 {off['p99_ms']} max {off['max_ms']} ms"
    )
    counts = ("chunks", "observations", "starved_ticks")
    return {
        "versions": stock[0]["versions"],
        **{name: sum(run[name] for run in stock) for name in counts},
        "gaps": found,
    }


def result_of(ours: list[Driven], stock: list[dict[str, Any]], duration_s: float) -> dict[str, Any]:
    """What is written, and said in short."""
    late = np.concatenate([run.late_ms for run in ours])
    statuses = [run.status for run in ours]
    cuts = cuts_ms(late)
    counts = {
        "ticks": sum(status.ticks for status in statuses),
        "overruns": sum(status.overruns for status in statuses),
        "missed_ticks": sum(status.skipped_ticks for status in statuses),
        "starved_ticks": sum(status.starved_ticks for status in statuses),
        "chunks": sum(status.answered for status in statuses),
    }
    missed: list[str] = []
    if cuts["p99_ms"] > BUDGET_P99_MS:
        missed.append(f"lateness p99 {cuts['p99_ms']} > {BUDGET_P99_MS} ms")
    if counts["missed_ticks"]:
        missed.append(f"{counts['missed_ticks']} instants without a tick")
    print(
        f"{len(late)} commands at {CONTROL_HZ:g} Hz: late p50 {cuts['p50_ms']}"
        f" p99 {cuts['p99_ms']} max {cuts['max_ms']} ms; {counts['overruns']} over-runs,"
        f" {counts['missed_ticks']} missed of {counts['ticks']}; {counts['chunks']} chunks,"
        f" {counts['starved_ticks']} starved ticks"
    )
    for target in missed:
        print(f"missed: {target}")
    round_trip = statuses[-1].round_trip
    return {
        "circumstances": circumstances(seed=SEED, packages=["numpy", "websockets"]),
        "control_hz": CONTROL_HZ,
        "image_hz": IMAGE_HZ,
        "images": [list(SIZE)] * 2,
        "rounds": len(ours),
        "seconds": duration_s,
        "commands": len(late),
        "late": cuts,
        **counts,
        "round_trip_ms": None if round_trip is None else to_ms(round_trip),
        "failures": dict(sum((Counter(status.failures) for status in statuses), Counter())),
        "log_dropped": sum(status.log_dropped for status in statuses),
        "missed": missed,
        "gaps": gaps([run.came for run in ours]),
        "lerobot": stock_result(stock) if stock else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="tick jitter with images")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--lerobot", type=Path, help="Python of an environment with LeRobot 0.4")
    parser.add_argument("--rounds", type=int, default=3, help="with --lerobot: turns of each")
    parser.add_argument("--quick", action="store_true", help="5 seconds, one round")
    parser.add_argument("--out", type=Path, help="where to write the result")
    asked = parser.parse_args()
    duration_s = 5.0 if asked.quick else asked.seconds
    rounds = asked.rounds if asked.lerobot is not None and not asked.quick else 1
    options = ["--model", "echo", "--openpi", "0", "--lerobot", "0", "--latency-ms", "100"]
    ours: list[Driven] = []
    stock: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, serving(options) as server:
        address = server.wait_until_ready(PATIENCE)
        for _ in range(rounds):
            ours.append(drive(address, Path(folder), duration_s))
            if asked.lerobot is not None:
                stock.append(drive_stock(asked.lerobot, server, duration_s))
    result = result_of(ours, stock, duration_s)
    out = asked.out or (None if asked.quick else RESULTS / "ticks.json")
    if out is not None:
        write(out, result)
    return int(bool(result["missed"]))


if __name__ == "__main__":
    sys.exit(main())
