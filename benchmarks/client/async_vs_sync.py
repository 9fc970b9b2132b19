"""How much faster is a robot that never waits, at equal success, and what does it cost?

    python benchmarks/client/async_vs_sync.py --jobs 2 --out benchmarks/results/async.json

Needs the extras ``server`` and ``metaworld``. Two parts. The **sweep** runs `mini` on four
Meta-World tasks in virtual time: real policy outputs, real physics, the shipped control loop, and
answers that take a declared time; from ``environment_dt / answer time`` of 0.1 to 1.5, sequential
inference, LeRobot's rule at five thresholds and our replanning are run from the same starts with
the same noise. The **wall clock** part runs three points again through sockets, with ``takt
serve``, the shipped control loop in real time and, where ``--lerobot PYTHON`` names an
environment with it, LeRobot's own client.

Must show: at least 90 % of the bound ``(1 + x) / max(1, x)`` for x >= 1 at equal success, and 1.8
or more at x about 1, where x is ``n environment_dt / answer time`` with the n = 8 actions that
sequential inference executes of a chunk; our replanning as good as g = 0.7 with at most 60 % of
its inferences. At most 60 minutes. It goes on where it was stopped: what is done lies beside the
result, in ``async.jsonl``. ``--quick`` takes under two minutes and writes only where ``--out``
says. The page is made by ``benchmarks/client/async_page.py`` from the result alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks._record import RESULTS, circumstances, write
from benchmarks.client.async_plan import QUICK, WHOLE, Cell, Plan, State
from benchmarks.client.async_result import result_of

from takt.errors import UsageError

__all__ = ["main"]

PACKAGES = ("numpy", "openvino", "mujoco", "metaworld")


@lru_cache(maxsize=1)
def _bench(seed: int) -> Any:  # noqa: ANN401 - its module needs the extras
    from benchmarks.client.async_metaworld import Bench

    return Bench(seed=seed)


def run_cell(plan: Plan, cell: Cell) -> dict[str, Any]:
    """Every start of a cell, in this process."""
    from benchmarks.client.async_robot import ARMS, run_episode

    bench = _bench(plan.seed)
    world = bench.world(cell.task)
    began = time.monotonic()
    episodes: list[Mapping[str, Any]] = []
    for start in range(plan.starts):
        world.reset(start)
        bench.policy.begin(f"{cell.task} {start}")
        found = run_episode(world, bench.policy.ask, ARMS[cell.arm], plan.conditions(cell.c))
        found["queue"] = " ".join(map(str, found["queue"])) if start == 0 else ""
        episodes.append({"task": cell.task, "start": start, **found})
    return {"took_s": round(time.monotonic() - began, 2), "episodes": episodes}


def sweep(plan: Plan, state: State, jobs: int) -> None:
    """Run the cells that are not done."""
    cells = state.missing(plan.cells())
    if not cells:
        return
    progress = Progress("sweep", len(cells))
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(run_cell, plan, cell): cell for cell in cells}
        for future in as_completed(futures):
            cell = futures[future]
            record = future.result()
            state.add(cell.key, record)
            progress.tell(cell.key, record["episodes"])


class Progress:
    """Says what is done and how long the rest takes."""

    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._done = 0
        self._began = time.monotonic()

    def tell(self, key: str, episodes: Sequence[Mapping[str, Any]]) -> None:
        self._done += 1
        spent = time.monotonic() - self._began
        left = spent / self._done * (self._total - self._done) / 60.0
        solved = [each for each in episodes if each["is_solved"]]
        ticks = sorted(each["ticks"] for each in solved)
        median = ticks[len(ticks) // 2] if ticks else "-"
        print(
            f"{self._name} {self._done}/{self._total}, {left:.1f} min left: {key}:"
            f" {len(solved)}/{len(episodes)} solved, {median} ticks",
            flush=True,
        )


def wall_clock(plan: Plan, state: State, lerobot: Path | None) -> None:
    """Run the points on the wall clock that are not done."""
    from benchmarks.client.async_wall_clock import WallClock

    cells = state.missing(plan.wall_cells())
    if lerobot is None:
        cells = [cell for cell in cells if cell.arm != "stock"]
    if not cells:
        return
    progress = Progress("wall clock", len(cells))
    with TemporaryDirectory() as folder:
        bench = WallClock(plan, state, Path(folder), lerobot)
        try:
            for cell in cells:
                record = bench.run(cell)
                state.add(cell.key, record)
                progress.tell(cell.key, record["episodes"])
        finally:
            bench.close()


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--starts", type=int, help="of each task, instead of the plan's")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the sweep")
    parser.add_argument("--out", type=Path, help="where the result goes, as JSON")
    parser.add_argument("--state", type=Path, help="where it goes on from; beside --out")
    parser.add_argument("--only-sweep", action="store_true")
    parser.add_argument("--only-wall-clock", action="store_true")
    parser.add_argument("--lerobot", type=Path, help="python of an environment with LeRobot")
    return parser.parse_args()


def main() -> int:
    options = read_options()
    plan = QUICK if options.quick else WHOLE
    plan = replace(plan, starts=options.starts or plan.starts)
    out = options.out or (None if options.quick else RESULTS / "async.json")
    with TemporaryDirectory() as folder:
        beside = Path(folder) / "async.jsonl" if out is None else out.with_suffix(".jsonl")
        state = State(options.state or beside, plan)
        if not options.only_wall_clock:
            sweep(plan, state, options.jobs)
        if not options.only_sweep:
            wall_clock(plan, state, options.lerobot)
        result = {
            "circumstances": circumstances(seed=plan.seed, packages=PACKAGES),
            **result_of(plan, state),
        }
    for line in result["must_show"]:
        print(("holds    " if line["holds"] else "MISSED   ") + line["text"])
    if out is not None:
        write(out, result)
    return 0


if __name__ == "__main__":
    # Set before NumPy and OpenVINO are imported by the processes of the sweep.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("LP_NUM_THREADS", "0")  # of Mesa's renderer, besides the calling one
    try:
        sys.exit(main())
    except UsageError as error:
        sys.exit(str(error))
