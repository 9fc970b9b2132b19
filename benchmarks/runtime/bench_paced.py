"""How far is a paced fleet from the simulation of the same fleet?

Why it matters: a paced run has everything real but the launches, so what lies between the two is
what the simulator leaves out: sockets, decoding, preprocessing, the link, the loop's own time and
the mood of the computer. A capacity that was simulated can be believed as far as this page says.

    python benchmarks/runtime/bench_paced.py
    python benchmarks/runtime/bench_paced.py --quick

Sixteen robots of pi0's kind ask at 2 Hz, open loop, with three 224 x 224 images each, over
loopback. ``takt serve --paced`` serves them; ``takt simulate``'s loop runs the same robots, model,
profile, formation and layout with a network that takes no time. Phases of the robots are drawn from
the same seeds by different generators, so runs are compared as a set and not one by one. Attainment
and quantiles are over all requests of a run, on the robots' clocks; of runs the table has the
median and the range. The full form writes ``results/paced.json`` and ``docs/results/paced.md``.
"""

import argparse
import io
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from takt.cli.drive import Drive
from takt.cli.driving.server_process import serving
from takt.core.trace import Setup
from takt.hardware import model_for, profile_for
from takt.policies.mini.replay import load_recordings
from takt.policies.stand_in import STAND_INS
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.loop import simulate
from takt.sim.network import ConstantNetwork
from takt.sim.report import report
from takt.units import SECOND, seconds

sys.path.insert(0, str(Path(__file__).parents[1]))

from _record import RESULTS, circumstances, write

PAGE = Path(__file__).parents[2] / "docs" / "results" / "paced.md"
PROSE = Path(__file__).with_name("paced.md")
DEVICE, ARCHITECTURE, ROBOTS, RATE_HZ = "rtx-pro-6000", "pi0", 16, 2.0
FORMATIONS = ("monolithic", "lockstep", "flowing")
FIGURES = {
    "attainment": ("SLO attainment", "{:.2%}"),
    "on_time_share": ("on time", "{:.2%}"),
    "p50": ("p50 ms", "{:.1f}"),
    "p99": ("p99 ms", "{:.1f}"),
}
OUTSIDE = ("network", "decode", "wait", "preprocess", "link", "finish")
"""Stages of a live request that take no time in the simulation."""


def paced_run(address: str, seed: int, run_seconds: float) -> dict[str, Any]:
    """What robots measured at a paced server."""
    drive = Drive(
        address=address, robots=(f"{ARCHITECTURE}={ROBOTS}",), seconds=run_seconds, seed=seed
    )
    figures = drive.drive(Console(file=io.StringIO()))
    if figures["foreign_chunks"] or not figures["paced"]:
        raise SystemExit("the server mixed up robots, or is not paced")
    return chosen(figures)


def simulated_run(formation: str, seed: int, run_seconds: float) -> dict[str, Any]:
    """What the simulator says of the same fleet."""
    stand_in, model = STAND_INS[ARCHITECTURE], model_for(ARCHITECTURE)
    group = RobotGroup(
        model=ARCHITECTURE,
        count=ROBOTS,
        device="gpu",
        rate_hz=RATE_HZ,
        control_hz=stand_in.control_hz,
        horizon=stand_in.horizon,
        deadline="queue",
        supersede=True,
        layout=stand_in.layout_of(len(stand_in.cameras), load_recordings()[0].instruction),
    )
    setup = Setup(models=(model,), profile=profile_for(DEVICE, [model]), formation=formation)
    fleet = Fleet(
        devices={"gpu": setup}, robots=(group,), network=ConstantNetwork(up_ms=0.0, down_ms=0.0)
    )
    return chosen(report(simulate(fleet, duration=seconds(run_seconds), seed=seed)))


def chosen(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that are compared."""
    latency = figures["latency_ms"] or {}
    return {
        "issued": figures["issued"],
        "attainment": figures["attainment"],
        "on_time_share": figures["on_time_share"],
        "p50": latency.get("p50"),
        "p99": latency.get("p99"),
        "stages_ms": {
            stage: {cut: times[cut] for cut in ("p50", "p99")}
            for stage, times in figures["stages_ms"].items()
        },
    }


def compare(formation: str, seeds: Sequence[int], run_seconds: float) -> list[dict[str, Any]]:
    """Both kinds of runs of one formation, seed by seed."""
    rows: list[dict[str, Any]] = []
    options = ["--paced", DEVICE, "--model", ARCHITECTURE, "--formation", formation]
    with serving([*options, "--openpi", "0"]) as server:
        address = server.wait_until_ready(60 * SECOND)
        paced_run(address, seed=-1, run_seconds=min(run_seconds, 2.0))  # left out: first rounds
        for seed in seeds:
            row = {
                "formation": formation,
                "seed": seed,
                "paced": paced_run(address, seed, run_seconds),
                "simulated": simulated_run(formation, seed, run_seconds),
            }
            rows.append(row)
            print(json.dumps({k: sides(row, k) for k in ("attainment", "p50", "p99")}), flush=True)
    return rows


def sides(row: Mapping[str, Any], figure: str) -> list[float]:
    """A figure of a pair of runs: paced, simulated."""
    return [row["paced"][figure], row["simulated"][figure]]


def page_of(result: Mapping[str, Any]) -> str:
    """The page that tells the result."""
    settings, told = result["settings"], result["circumstances"]
    facts = {
        "runs": f"Runs per formation: {len(settings['seeds'])}, of {settings['seconds']:g} s each",
        "machine": f"{told['cpu']}, {told['cores']} cores, load {told['load']:g}",
        "figures": figures_table(result["runs"]),
        "stages": stages_table(result["runs"]),
    }
    text = PROSE.read_text(encoding="utf-8")
    for name, value in facts.items():
        text = text.replace(f"<!-- {name} -->", value)
    return text


def figures_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Both kinds side by side, by formation and figure."""
    lines = ["| formation | figure | paced | simulated |", "|---|---|---|---|"]
    for formation in dict.fromkeys(row["formation"] for row in rows):
        found = [row for row in rows if row["formation"] == formation]
        for figure, (title, form) in FIGURES.items():
            cells = [
                spread([row[kind][figure] for row in found], form)
                for kind in ("paced", "simulated")
            ]
            lines.append(f"| {formation} | {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def stages_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where the time went: the median over runs of each run's p50."""
    lines = ["| formation | stage | paced p50 ms | simulated p50 ms |", "|---|---|---|---|"]
    for formation in dict.fromkeys(row["formation"] for row in rows):
        found = [row for row in rows if row["formation"] == formation]
        for stage in ("prefix", "denoise"):
            cells = [
                f"{statistics.median(row[kind]['stages_ms'][stage]['p50'] for row in found):.1f}"
                for kind in ("paced", "simulated")
            ]
            lines.append(f"| {formation} | {stage} | {' | '.join(cells)} |")
        outside = [
            sum(row["paced"]["stages_ms"].get(name, {"p50": 0.0})["p50"] for name in OUTSIDE)
            for row in found
        ]
        lines.append(f"| {formation} | outside the device | {statistics.median(outside):.1f} | 0 |")
    return "\n".join(lines)


def spread(values: Sequence[float], form: str) -> str:
    """The median of some runs and their range."""
    middle, *ends = (form.format(v) for v in (statistics.median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({ends[0]} to {ends[1]})"


def main() -> int:
    """Run both, print and write what came out."""
    parser = argparse.ArgumentParser(description="A paced fleet beside its simulation")
    parser.add_argument("--seeds", type=int, default=5, help="runs per formation")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run")
    parser.add_argument("--quick", action="store_true", help="one run of 4 s, lockstep only")
    parser.add_argument("--out", type=Path, help="where to write the result")
    parser.add_argument("--page", type=Path, help="where to write the page")
    asked = parser.parse_args()
    seeds = range(1 if asked.quick else asked.seeds)
    run_seconds = 4.0 if asked.quick else asked.seconds
    formations = ("lockstep",) if asked.quick else FORMATIONS
    result = {
        "question": "how far is a paced fleet from its simulation",
        "circumstances": circumstances(seed=0, packages=["numpy", "websockets", "uvloop"]),
        "settings": {
            "device": DEVICE,
            "model": ARCHITECTURE,
            "robots": ROBOTS,
            "rate_hz": RATE_HZ,
            "seconds": run_seconds,
            "seeds": list(seeds),
        },
        "runs": [row for f in formations for row in compare(f, seeds, run_seconds)],
    }
    page = page_of(result)
    print(figures_table(result["runs"]))
    if asked.out is not None or not asked.quick:
        write(asked.out or RESULTS / "paced.json", result)
    if asked.page is not None or not asked.quick:
        (asked.page or PAGE).write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
