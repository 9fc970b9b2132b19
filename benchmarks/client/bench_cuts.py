"""How long does a robot go on after its network is cut, and does it hold in time?

Why it matters: these are the numbers an integrator needs for the distance a robot covers after its
server has gone. Two times are stated and both are bounded by settings: from the cut to the last
valid action, at most ``max_action_age`` (the actions in the queue were planned from what was seen);
from that to HOLD, at most ``t_hold``. Budget: HOLD within ``t_hold`` of the last valid action, and
within ``max_action_age + t_hold`` of the cut, in every one of 100 cuts.

    python benchmarks/client/bench_cuts.py

`takt serve --model echo` in processes of its own, a loopback proxy that resets every connection and
refuses new ones, a simulated arm at 60 Hz. Each cut comes after a random time of motion (seed 7);
the network is restored once the robot holds, and it resumes by ``auto_if_still``.
"""

import argparse
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from _record import RESULTS, circumstances, write
from takt.cli.driving.server_process import serving
from takt.client import Backoff, ControlLoop, EpisodeLog, Hooks, LoopSettings, connect
from takt.client.episode import Episode, read_episode
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import State
from takt.testing import LoopbackProxy
from takt.units import MILLISECOND, ms, seconds, to_ms

SEED = 7
RULES = ContractRules(
    max_action_age=ms(1000),
    t_hold=ms(500),
    t_stop=None,
    resume="auto_if_still",
    max_start_jump=1e9,
    resume_ramp=0,
)
SETTINGS = LoopSettings(control_hz=60.0, contract=RULES)
PATIENCE = seconds(30)
MOST_MOTION_S = 0.8


class Arm:
    """Follows every command at once."""

    def __init__(self) -> None:
        self.position = np.zeros(7, np.float32)

    def observe(self) -> Mapping[str, object]:
        """Seven joints."""
        return {"observation/state": self.position.copy()}

    def act(self, action: np.ndarray, /) -> None:
        """Take a command."""
        # The echo policy counts up for ever; a joint's angle stays small.
        self.position = np.asarray(action % 100, np.float32)


def pose(seen: Mapping[str, object]) -> np.ndarray:
    return np.asarray(seen["observation/state"])


def cut_often(address: str, log: EpisodeLog, cuts: int) -> None:
    """Cut so many times, each after some motion, and wait for the hold."""
    random = Random(SEED)
    backoff = Backoff(base=MILLISECOND, most=50 * MILLISECOND, random=random.random)
    pause = threading.Event()
    with (
        LoopbackProxy(address) as proxy,
        ControlLoop(
            Arm(),
            partial(connect, proxy.address),
            SETTINGS,
            hooks=Hooks(pose=pose),
            log=log,
            backoff=backoff,
        ) as loop,
    ):
        loop.start()
        for _ in range(cuts):
            expect(loop, State.ACTIVE)
            pause.wait(random.uniform(0.1, MOST_MOTION_S))
            log.note("cut", {})
            proxy.cut()
            expect(loop, State.HOLD)
            proxy.restore()


def expect(loop: ControlLoop, state: State) -> None:
    if not loop.wait_for(state, timeout=PATIENCE):
        raise SystemExit(f"the robot did not become {state.value}: {loop.status()}")


def times_of(episode: Episode) -> dict[str, list[float]]:
    """Milliseconds of each cut, by what they lie between."""
    found: dict[str, list[float]] = {"cut_to_last_action": [], "last_action_to_hold": []}
    found["cut_to_hold"] = []
    cut = last = 0.0
    for record in episode.records:
        if record["event"] == "cut":
            cut = record["at_ms"]
        elif record["event"] == "action":
            last = record["at_ms"]
        elif record["event"] == "state" and record["after"] == "hold":
            found["cut_to_last_action"].append(last - cut)
            found["last_action_to_hold"].append(record["at_ms"] - last)
            found["cut_to_hold"].append(record["at_ms"] - cut)
    return found


def quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "cuts": len(ordered),
        "p50_ms": round(ordered[len(ordered) // 2], 1),
        "max_ms": round(ordered[-1], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="cut-to-hold times")
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="8 cuts")
    parser.add_argument("--out", type=Path, help="where to write the result")
    asked = parser.parse_args()
    cuts = 8 if asked.quick else asked.cuts
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cuts.jsonl"
        options = ["--model", "echo", "--openpi", "0", "--horizon", "50"]
        with serving(options) as server, EpisodeLog(path) as log:
            cut_often(server.wait_until_ready(PATIENCE), log, cuts)
        episode = read_episode(path)
    times = {name: quantiles(values) for name, values in times_of(episode).items()}
    limits = {
        "last_action_to_hold": to_ms(RULES.t_hold),
        "cut_to_hold": to_ms(RULES.max_action_age + RULES.t_hold),
    }
    missed = [name for name, limit in limits.items() if times[name]["max_ms"] > limit]
    for name, cut in times.items():
        print(f"{name:>20}: p50 {cut['p50_ms']:7.1f}  max {cut['max_ms']:7.1f} ms")
    for name in missed:
        print(f"missed: {name} beyond {limits[name]:g} ms")
    result: dict[str, Any] = {
        "circumstances": circumstances(seed=SEED, packages=["numpy", "websockets"]),
        "settings": SETTINGS.in_words(),
        "times": times,
        "limits_ms": limits,
        "is_complete": episode.is_complete,
        "missed": missed,
    }
    out = asked.out or (None if asked.quick else RESULTS / "cuts.json")
    if out is not None:
        write(out, result)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
