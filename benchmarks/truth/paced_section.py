"""What the cells of the paced part say: knees, claims, and their section of the page.

Everything here works on recorded cells; nothing is measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from benchmarks.truth.part import Claim, Found
from scipy.optimize import isotonic_regression

__all__ = [
    "TARGET",
    "Knee",
    "Row",
    "claims_of",
    "knee_of",
    "measured_of",
    "outside_by_model",
    "rows_of",
    "section_of",
]

TARGET = 0.98
"""Attainment that a population must reach."""
TITLES = {"pi0": "pi0", "smolvla": "SmolVLA", "mix": "pi0 and SmolVLA"}
FIVE_MINUTES = 300.0
_OUTSIDE = ("up_ms", "down_ms", "allowance_ms", "handover_ms", "spread", "p99_up_and_down_ms")
_ROUNDING = 1e-9
_BUSY = 0.7
"""Of a core: a process that uses more makes its robots wait."""
_PLAN = re.compile(r"plan (?P<fleet>.+), stranger (?P<seed>\d+), (?P<formation>\w+)")


class Knee(NamedTuple):
    """What the populations that were measured say."""

    robots: int | None
    """Largest population that reaches the target; None: none that was measured does."""
    is_bracketed: bool
    """Whether a larger one was measured, too."""


class Row(NamedTuple):
    """A knee that was predicted, and what was measured."""

    fleet: str
    seed: int
    asked: str
    """The formation that was asked for; ``auto`` is the best one."""
    planned: Mapping[str, Any]
    measured: Mapping[int, Mapping[str, Any]]
    """By population."""

    @property
    def predicted(self) -> int:
        """The simulated knee."""
        return self.planned["predicted"]

    @property
    def knee(self) -> Knee:
        """The measured one."""
        return knee_of({robots: it["attainment"] for robots, it in self.measured.items()})

    @property
    def difference(self) -> int | None:
        """Measured less predicted; None where the measured knee was not bracketed."""
        knee = self.knee
        if knee.robots is None or not knee.is_bracketed:
            return None
        return knee.robots - self.predicted


def knee_of(attainments: Mapping[int, float]) -> Knee:
    """The knee among populations that were measured.

    Robots keep their phases when others join them, so a population is hardly ever served better
    than a smaller one, but where a batch fills sooner; what was measured to say so is mostly noise,
    and neighbours that do are averaged before the knee is read off (isotonic regression). The first
    that happens to miss the target would be too small a knee, the last that happens to reach it too
    large a one.

    Args:
        attainments: Mean attainment by population.
    """
    sizes = sorted(attainments)
    if not sizes:
        return Knee(None, False)
    measured = [attainments[robots] for robots in sizes]
    fitted = isotonic_regression(measured, weights=sizes, increasing=False).x
    num_held = int(np.count_nonzero(fitted >= TARGET - _ROUNDING))
    return Knee(sizes[num_held - 1] if num_held else None, 0 < num_held < len(sizes))


def measured_of(told: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of the figures of ``takt bench``.

    Raises:
        ValueError: A chunk belonged to another robot, or the device was not paced.
    """
    if told["foreign_chunks"] or not told["paced"]:
        raise ValueError("the server mixed up robots, or is not paced")
    split = told["split_ms"]
    return {
        "paced": True,
        "attainment": told["mean"],
        "epochs": [epoch["attainment"] for epoch in told["epochs"]],
        "worst_robot": told["worst_robot"]["attainment"],
        "issued": told["issued"],
        "latency_ms": {cut: told["latency_ms"][cut] for cut in ("p50", "p99")},
        "split_p50_ms": {part: values["p50"] for part, values in split.items()},
        "client_cores": told["senders"]["cpu_share"],
        "busiest_sender": told["senders"]["busiest"],
        "lag_p99_ms": told["senders"]["lag_ms"]["p99"],
        "is_client_the_limit": told["senders"]["is_bottleneck"],
        "cpu": told["cpu"],
    }


def rows_of(found: Found) -> list[Row]:
    """Every contestant that was planned."""
    rows: list[Row] = []
    for key, planned in found.items():
        named = _PLAN.fullmatch(key)
        if named is None:
            continue
        start = f"measure {key.removeprefix('plan ')} at "
        measured = {
            int(other.removeprefix(start)): result
            for other, result in found.items()
            if other.startswith(start)
        }
        rows.append(Row(named["fleet"], int(named["seed"]), named["formation"], planned, measured))
    return rows


def claims_of(found: Found) -> list[Claim]:
    """What the figures bear out."""
    rows = rows_of(found)
    return [*_knees(rows), *_ranks(rows), *_profiling(found)]


def _knees(rows: Sequence[Row]) -> Iterator[Claim]:
    measured = [row for row in rows if row.measured]
    if not measured:
        return
    within = [row for row in measured if row.difference is not None and abs(row.difference) <= 1]
    off = [f"{_said(row)} {_difference(row)}" for row in measured if row not in within]
    yield Claim(
        text=f"On perturbed paced devices the measured knee lies within one robot of the"
        f" predicted one: {len(within)} of {len(measured)}"
        f"{'; not so: ' if off else ''}{', '.join(off)} (plans simulated, devices paced)",
        holds=not off,
    )


def _ranks(rows: Sequence[Row]) -> Iterator[Claim]:
    fleets = dict.fromkeys((row.fleet, row.seed) for row in rows if row.asked != "auto")
    for fleet, seed in fleets:
        rivals = [row for row in rows if (row.fleet, row.seed) == (fleet, seed)]
        if any(row.difference is None for row in rivals):
            continue
        swapped = [
            f"{one.asked} and {other.asked}"
            for one, other in combinations(sorted(rivals, key=lambda row: -row.predicted), 2)
            if one.predicted > other.predicted and _robots(one) < _robots(other)
        ]
        order = ", ".join(f"{row.asked} {row.predicted} and {row.knee.robots}" for row in rivals)
        yield Claim(
            text=f"Formations rank as simulated for {TITLES.get(fleet, fleet)} on stranger {seed}"
            f" (predicted and measured: {order})"
            f"{'; swapped: ' if swapped else ''}{', '.join(swapped)}",
            holds=not swapped,
        )


def _profiling(found: Found) -> Iterator[Claim]:
    cores = found.get("profile of cores")
    if cores is not None and len(cores["models"]) > 1:
        yield Claim(
            text=f"`takt profile` learns {len(cores['models'])} models on this computer's cores"
            f" in under five minutes: {cores['seconds']:.0f} s",
            holds=cores["seconds"] < FIVE_MINUTES,
        )


def section_of(found: Found) -> str:
    """The section of the page."""
    rows = rows_of(found)
    if not found:
        return ""
    return "\n\n".join(
        part for part in (_introduction(), _table(rows), _around(rows), _told(found, rows)) if part
    )


def _introduction() -> str:
    return (
        "## Paced devices that nobody has seen before\n\n"
        "Predicted: `takt profile` measures a perturbed paced device from outside, `takt plan`"
        " simulates with that profile alone. Measured: `takt bench` asks `takt serve` of the same"
        " fleet file over loopback, at 2 Hz per robot, open loop, on the robots' clocks; launches"
        " wait for their modelled, perturbed times and compute nothing. A knee is the largest"
        " population up to which the mean attainment over five draws of the robots' phases reaches"
        " 98 %; both sides have the same draws. Robots keep their phases when others join them, so"
        " they are hardly ever served better for it, but where a batch fills sooner; where measured"
        " attainments rise, neighbours are averaged before the knee is read off (isotonic"
        " regression). *auto* is the best formation by prediction."
    )


def _table(rows: Sequence[Row]) -> str:
    lines = [
        "| robots' models | GPU, paced | stranger | formation | predicted (simulated)"
        " | measured (paced) | difference |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {TITLES.get(row.fleet, row.fleet)} | {row.planned['gpu']} | {row.seed}"
        f" | {_formation(row)} | {row.predicted} | {_measured(row)} | {_difference(row)} |"
        for row in rows
    ]
    return "\n".join(lines) if rows else ""


def _around(rows: Sequence[Row]) -> str:
    lines = ["Attainment, predicted and measured, by robots more than the predicted knee:", ""]
    lines += ["| | -1 | 0 | +1 |", "|---|---|---|---|"]
    for row in rows:
        simulated = {it["robots"]: it["attainment"] for it in row.planned["attainment"]}
        cells = [
            f"{_percent(simulated.get(robots))}, {_percent(_attainment(row, robots))}"
            for robots in (row.predicted - 1, row.predicted, row.predicted + 1)
        ]
        lines.append(f"| {_said(row)} | {' | '.join(cells)} |")
    return "\n".join(lines) if rows else ""


def _told(found: Found, rows: Sequence[Row]) -> str:
    lines = [*_outside(found), *_cpu([it for row in rows for it in row.measured.values()])]
    lines += _times(found)
    return "\n".join(f"- {line}" for line in lines)


def outside_by_model(found: Found, models: Sequence[str]) -> dict[str, dict[str, float]]:
    """What was measured of each model's requests outside the device: medians over the rounds."""
    rounds = {
        model: [it for key, it in found.items() if key.startswith(f"outside {model}, round ")]
        for model in models
    }
    return {
        model: {key: median(it[key] for it in cells) for key in _OUTSIDE}
        for model, cells in rounds.items()
        if cells
    }


def _outside(found: Found) -> Iterator[str]:
    outside = outside_by_model(found, [*TITLES]).items()
    if outside:
        said = ", ".join(
            f"{TITLES.get(fleet, fleet)} {it['up_ms']:.1f}, {it['down_ms']:.1f} and"
            f" {it['handover_ms']:.2f} ms, launches spread by {it['spread']:.1%}"
            for fleet, it in outside
        )
        yield (
            "The computer's own part, medians over the rounds, which every"
            " plan reckons with: a request's way in and out (sockets, decoding, the link), and the"
            f" hand-over from one launch to the next: {said}."
        )
        tails = ", ".join(
            f"{TITLES.get(fleet, fleet)} {it['p99_up_and_down_ms']:.0f} ms" for fleet, it in outside
        )
        yield (
            "The 99th percentiles of the parts of the way in and out add up to more, the stalls of"
            f" a computer that plays robots, server and GPU at once: {tails}. Plans reckon with"
            " medians, so a slo that leaves few milliseconds loses what they call met."
        )


def _cpu(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not cells:
        return
    shares = {
        "client": [it["client_cores"] for it in cells],
        "gateway": [it["cpu"].get("gateway", 0.0) for it in cells],
        "worker": [it["cpu"].get("worker", 0.0) for it in cells],
    }
    said = ", ".join(f"{n} {median(v):.2f} (most {max(v):.2f})" for n, v in shares.items())
    limited = sum(it["is_client_the_limit"] for it in cells)
    again = sum(it.get("is_second", False) for it in cells)
    yield (
        f"Cores used by client, gateway and worker, on the same computer: {said}; in {limited} of"
        f" {len(cells)} runs `takt bench` called itself the limit (a process above {_BUSY:.0%} of a"
        " core, or 1 % of observations more than 5 ms late); so it had said of the first try of"
        f" {again}, which were measured a second time."
    )
    yield f"{sum(it['issued'] for it in cells)} requests were issued; every chunk was the robot's."


def _times(found: Found) -> Iterator[str]:
    profiled = [
        (key.removeprefix("profile "), it["device_s"])
        for key, it in found.items()
        if "device_s" in it
    ]
    if profiled:
        said = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in profiled)
        yield (
            "`takt profile --relative-error 0.01` took, in the paced device's own time, of which"
            f" none was waited for: {said}. The 3 % that it aims at when nothing is said take a"
            " seventh of that; one robot of 25 is 4 % of a load, so they leave a plan little room."
        )
    cores = found.get("profile of cores")
    if cores is not None:
        yield (
            f"On this computer's cores {len(cores['models'])} models ({', '.join(cores['models'])})"
            f" took {cores['seconds']:.0f} s."
        )


def _said(row: Row) -> str:
    return f"{TITLES.get(row.fleet, row.fleet)}, stranger {row.seed}, {row.asked}"


def _formation(row: Row) -> str:
    options = "".join(f", {name} {value}" for name, value in row.planned["options"].items())
    sizes = [
        max(row.planned[key][model])
        for key in ("prefix_sizes", "denoise_sizes")
        for model in list(row.planned[key])[:1]
    ]
    best = "auto: " if row.asked == "auto" else ""
    return f"{best}{row.planned['formation']}{options}, batches to {sizes[0]} and {sizes[1]}"


def _measured(row: Row) -> str:
    knee = row.knee
    if not row.measured:
        return "-"
    if knee.robots is None:
        return f"fewer than {min(row.measured)}"
    return str(knee.robots) if knee.is_bracketed else f"at least {knee.robots}"


def _difference(row: Row) -> str:
    return "-" if row.difference is None else f"{row.difference:+d}" if row.difference else "0"


def _robots(row: Row) -> int:
    return row.knee.robots or 0


def _attainment(row: Row, robots: int) -> float | None:
    it = row.measured.get(robots)
    return None if it is None else it["attainment"]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
