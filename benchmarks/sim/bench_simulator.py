"""How many times faster than real time does the simulator run on one core?

Why it matters: a curve of attainment over population takes a hundred runs, a comparison of
formations a thousand, and people wait for them. Budget: at least 100 times faster for 64 robots
that ask twice a second, 8 models and 4 devices in lockstep.

    python benchmarks/sim/bench_simulator.py [--quick] [--out FILE]

The fleet is ``examples/hall.yaml``. A run is the same work every time, so its cost is the least of
its times, read from the processor's clock: what the simulation itself takes, without the turns and
the cache of a neighbour. All times are reported, by the wall clock too, as quantiles. Counting the
report's figures is timed apart. Exit status 1 when the budget is missed.
"""

import argparse
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple, TypeVar

sys.path.insert(0, str(Path(__file__).parents[1]))

from _record import RESULTS, circumstances, write
from takt.server.fleet_file import FleetFile
from takt.sim.fleet import Fleet
from takt.sim.loop import Run, simulate
from takt.sim.report import report
from takt.units import seconds

T = TypeVar("T")

FLEET = Path(__file__).parents[2] / "examples" / "hall.yaml"
SEED = 0
WARM_UP_S = 5.0
BUDGET = 100.0
"""Virtual seconds per second of one core."""


class Timing(NamedTuple):
    """Seconds of one repetition on two clocks."""

    cpu_s: float
    wall_s: float


def timed(work: Callable[[], T]) -> tuple[T, Timing]:
    gc.collect()  # so that collections fall on the same places in every repetition
    cpu, wall = process_time(), perf_counter()
    result = work()
    return result, Timing(process_time() - cpu, perf_counter() - wall)


def run_of(fleet: Fleet, duration_s: float) -> Run:
    return simulate(fleet, duration=seconds(duration_s), warm_up=seconds(WARM_UP_S), seed=SEED)


def quantiles(values: list[float]) -> dict[str, float]:
    """Nearest-rank quantiles, rounded to four digits."""
    ordered = sorted(values)
    places = {"min": 0, "p50": 50, "p90": 90, "max": 100}
    return {
        name: float(f"{ordered[max(-(-percent * len(ordered) // 100), 1) - 1]:.4g}")
        for name, percent in places.items()
    }


def measure(fleet: Fleet, duration_s: float, repetitions: int) -> dict[str, object]:
    """Simulate ``repetitions`` times, after one run that is not counted."""
    fleet.network.allowance()  # drawn once per process, then known
    run = run_of(fleet, duration_s)
    runs, reports = [
        [timed(work)[1] for _ in range(repetitions)]
        for work in (lambda: run_of(fleet, duration_s), lambda: report(run))
    ]
    virtual_s = WARM_UP_S + duration_s
    fastest = min(timing.cpu_s for timing in runs)
    return {
        "requests": len(run.records),
        "virtual_s": virtual_s,
        "repetitions": repetitions,
        "speed": {
            "best": round(virtual_s / fastest, 1),
            "cpu": quantiles([virtual_s / timing.cpu_s for timing in runs]),
            "wall": quantiles([virtual_s / timing.wall_s for timing in runs]),
        },
        "us_per_request": round(fastest * 1e6 * duration_s / virtual_s / len(run.records), 1),
        "report_cpu_ms": quantiles([timing.cpu_s * 1e3 for timing in reports]),
        "budget": BUDGET,
        "is_within_budget": virtual_s / fastest >= BUDGET,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--out", type=Path, help="where the JSON goes; --quick writes none else")
    options = parser.parse_args()
    out: Path | None = options.out or (None if options.quick else RESULTS / "simulator.json")
    fleet = FleetFile.read(FLEET).fleet()

    duration_s, repetitions = (25.0, 5) if options.quick else (60.0, 30)
    figures = measure(fleet, duration_s, repetitions)

    speed = figures["speed"]
    print(
        f"{fleet.population} robots, {len(fleet.devices)} devices, {figures['requests']} requests"
    )
    print(f"times faster than real time: {speed}")
    print(f"us per request: {figures['us_per_request']}, report ms: {figures['report_cpu_ms']}")
    print("within the budget" if figures["is_within_budget"] else f"MISSED: {BUDGET:g} times")
    if out is not None:
        result = {
            "benchmark": "sim/simulator",
            "circumstances": circumstances(seed=SEED),
            "fleet": f"examples/{FLEET.name}",
            "robots": fleet.population,
            "models": sum(len(setup.models) for setup in fleet.devices.values()),
            "devices": len(fleet.devices),
            **figures,
        }
        write(out, result)
    return 0 if figures["is_within_budget"] else 1


if __name__ == "__main__":
    sys.exit(main())
