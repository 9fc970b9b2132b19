"""Does the server choose the best formation for `mini` on the cores of this computer?

``takt profile`` measures the cores, ``takt plan`` predicts the knee from that profile alone, and
four servers take turns at it and at a population a quarter below and above: lockstep, flowing and
monolithic as they are when named, and the one that ``--formation auto`` chooses for as many robots
as the knee. What counts is *goodput*, requests answered within the slo per second, because it tells
contestants apart also where none of them holds the target. ``takt bench`` asks, open loop, over
loopback.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.truth._pairs import Comparison, Scores, compare
from benchmarks.truth._takt_servers import (
    CONTROL_HZ,
    FORMATIONS,
    RATE_HZ,
    SLO_MS,
    TaktServers,
    around,
    predict,
    used_s,
)
from benchmarks.truth.part import Cell, Claim, Found

__all__ = ["PART", "CpuLanes"]

CHOICE = "auto"
CONTESTANTS = (CHOICE, *FORMATIONS)
ROUNDS, QUICK_ROUNDS = 6, 2
SECONDS, QUICK_SECONDS = 4.0, 2.0
WARM_UP_S = 0.5
OVERHEAD_S = 2.5
"""Starting the clients of a turn."""
BENCH_TIMEOUT_S = 90.0
TITLES = {CHOICE: "Takt's choice"}


@dataclass
class CpuLanes:
    """The part of the page about real lanes."""

    name: str = "cpu"
    packages: Sequence[str] = ("numpy", "openvino", "uvloop", "websockets")
    _servers: TaktServers = field(default_factory=TaktServers)

    def cells(self, quick: bool, found: Found) -> Sequence[Cell]:
        """See :class:`part.Part`."""
        profile = Cell(key="profile", seconds=20 if quick else 80, settings={"quick": quick})
        choice = Cell(key="choice", seconds=40)
        if "profile" not in found:
            return [profile, choice]
        knee = int(found["profile"]["knee"])
        return [profile, choice, *_turns(knee, quick)]

    def measure(self, cell: Cell, found: Found, folder: Path) -> Mapping[str, Any]:
        """See :class:`part.Part`."""
        if cell.key == "profile":
            return predict(folder, is_quick=cell.settings["quick"], is_fresh=True)
        if not (folder / "mini-profile.json").exists():
            predict(folder, is_quick=True, is_fresh=False)
        knee = int(found["profile"]["knee"])
        if cell.key == "choice":
            running = self._servers.get(folder, CHOICE, knee)
            return {"reason": running.reason, "declared": knee}
        try:
            return self._turn(cell.settings, folder, knee)
        finally:
            if cell.settings["is_last"]:
                self._servers.close()

    def _turn(self, settings: Mapping[str, Any], folder: Path, knee: int) -> dict[str, Any]:
        running = self._servers.get(folder, settings["contestant"], knee)
        before = used_s(running.pids)
        figures = _bench(running.openpi, settings)
        after = used_s(running.pids)
        window = WARM_UP_S + settings["seconds"]
        latency = figures["latency_ms"] or {}
        cores = {name: round((after[name] - before[name]) / window, 4) for name in before}
        return {
            "contestant": settings["contestant"],
            "robots": settings["robots"],
            "round": settings["round"],
            "issued": figures["issued"],
            "attainment": figures["attainment"],
            "goodput": round(figures["issued"] * figures["attainment"] / settings["seconds"], 4),
            "p50": latency.get("p50"),
            "p99": latency.get("p99"),
            "cores": {**cores, "clients": figures["senders"]["cpu_share"]},
            "lag_p99": (figures["senders"]["lag_ms"] or {}).get("p99"),
        }

    def claims(self, found: Found) -> Sequence[Claim]:
        """See :class:`part.Part`."""
        compared = compared_in(found)
        return [] if compared is None else [Claim(text=_verdict(compared), holds=compared.holds)]

    def section(self, found: Found) -> str:
        """See :class:`part.Part`."""
        if "profile" not in found:
            return ""
        turns, compared = turns_of(found), compared_in(found)
        parts = [
            "## The choice on real CPU lanes",
            _prediction(found),
            _table(turns) if turns else "No turn was measured yet.",
            "" if compared is None else _verdict(compared) + _HOW_COMPARED,
            _shares(turns) if turns else "",
            _CAN_SHOW,
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def _turns(knee: int, quick: bool) -> list[Cell]:
    """Every turn, in rounds; who goes first changes from round to round."""
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if quick else (ROUNDS, SECONDS)
    order = [
        (number, robots, CONTESTANTS[(number + place) % len(CONTESTANTS)])
        for number in range(1, rounds + 1)
        for robots in around(knee)
        for place in range(len(CONTESTANTS))
    ]
    return [
        Cell(
            key=f"{contestant} at {robots}, round {number}",
            seconds=seconds + WARM_UP_S + OVERHEAD_S,
            settings={
                "contestant": contestant,
                "robots": robots,
                "round": number,
                "seconds": seconds,
                "is_last": place == len(order) - 1,
            },
        )
        for place, (number, robots, contestant) in enumerate(order)
    ]


def _bench(address: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of one turn of ``takt bench``."""
    command = [sys.executable, "-m", "takt.cli.main", "bench", "--json", "--server", address]
    command += ["--robots", str(settings["robots"]), "--rate-hz", f"{RATE_HZ:g}"]
    command += ["--control-hz", f"{CONTROL_HZ:g}", "--slo-ms", f"{SLO_MS:g}", "--epochs", "1"]
    command += ["--seconds", f"{settings['seconds']:g}", "--warm-up-seconds", f"{WARM_UP_S:g}"]
    command += ["--seed", str(settings["round"])]
    done = subprocess.run(
        command,
        capture_output=True,
        check=False,
        text=True,
        timeout=BENCH_TIMEOUT_S,
    )
    if not done.stdout.strip():
        raise RuntimeError(f"takt bench: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def turns_of(found: Found) -> list[Mapping[str, Any]]:
    """The turns that were measured."""
    return [cell for cell in found.values() if "contestant" in cell]


def compared_in(found: Found) -> Comparison | None:
    """How the choice stands beside the best, if enough was measured."""
    scores: dict[str, dict[tuple[int, int], float]] = {name: {} for name in CONTESTANTS}
    for turn in turns_of(found):
        scores[turn["contestant"]][turn["round"], turn["robots"]] = turn["goodput"]
    given: Mapping[str, Scores] = scores
    return compare(given, CHOICE) if all(scores.values()) else None


def _prediction(found: Found) -> str:
    seen = found["profile"]
    low, knee, high = around(int(seen["knee"]))
    plans = ", ".join(f"{name} {robots}" for name, robots in seen["planned"].items())
    text = (
        f"`mini` on {seen['device']} ({seen['engine']}, {seen['precision']}); robots ask at"
        f" {RATE_HZ:g} Hz, slo {SLO_MS:g} ms. From the profile that `takt profile` measured here,"
        f" `takt plan` predicts these robots at 98 %: {plans}. It knows of no client and no gateway"
        f" that share the cores. Measured were **{knee}**, the most of them, and {low} and {high}."
    )
    reason = found.get("choice", {}).get("reason")
    return text if not reason else f"{text}\n\nThe server's own words at its start:\n\n> {reason}"


def _table(turns: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        "| robots | contestant | turns | goodput per second: median (least to most) |"
        " attainment | p50 ms | p99 ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for robots in sorted({turn["robots"] for turn in turns}):
        for name in CONTESTANTS:
            cells = [t for t in turns if t["robots"] == robots and t["contestant"] == name]
            if cells:
                lines.append(f"| {robots} | {TITLES.get(name, name)} | {_row(cells)} |")
    return "\n".join(lines)


def _row(cells: Sequence[Mapping[str, Any]]) -> str:
    goodput = [cell["goodput"] for cell in cells]
    share = sum(cell["attainment"] * cell["issued"] for cell in cells)
    share /= max(1, sum(cell["issued"] for cell in cells))
    times = (_median([cell[cut] for cell in cells]) for cut in ("p50", "p99"))
    spread = f"{statistics.median(goodput):.1f} ({min(goodput):.1f} to {max(goodput):.1f})"
    return f"{len(cells)} | {spread} | {share:.1%} | {' | '.join(times)}"


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.0f}" if known else "-"


def _verdict(compared: Comparison) -> str:
    low, high = compared.interval
    best = TITLES.get(compared.best, compared.best)
    verdict = (
        "Takt's choice was the measured best"
        if compared.choice == compared.best
        else (f"The measured best was {best}")
    )
    return (
        f"{verdict}; the choice's goodput over it, pair by pair, is {compared.ratio:.3f} in the"
        f" median (95 % interval {low:.3f} to {high:.3f}, {compared.pairs} pairs)."
    )


_HOW_COMPARED = (
    " The best was picked on every other round by its mean over the three populations, and the"
    " ratio taken on the rounds between; a pair is one round at one population, with the same"
    " phases of the robots."
)


def _shares(turns: Sequence[Mapping[str, Any]]) -> str:
    cores = len(os.sched_getaffinity(0))
    lines = [
        "Everything shares the cores of one computer. What each part used of them, in the median"
        f" over the turns, of {cores} cores:",
        "",
        "| robots | clients | gateway | worker | how late clients sent, p99 ms |",
        "|---|---|---|---|---|",
    ]
    for robots in sorted({turn["robots"] for turn in turns}):
        here = [turn for turn in turns if turn["robots"] == robots]
        used = (
            statistics.median(turn["cores"].get(part, 0.0) for turn in here)
            for part in ("clients", "gateway", "worker")
        )
        cells = [f"{value:.2f} ({value / cores:.0%})" for value in used]
        cells.append(_median([turn["lag_p99"] for turn in here]))
        lines.append(f"| {robots} | {' | '.join(cells)} |")
    return "\n".join(lines)


_CAN_SHOW = (
    "Two cores give each stage a device of its own, so what is gained here by running a prefix"
    " beside a denoise loop says nothing of a GPU. Clients and gateway take their part of the same"
    " cores: fewer robots are carried than were predicted for the lanes alone."
)

PART = CpuLanes()
