"""What was seen of the stock servers, in tables and sentences."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.truth.part import Found

__all__ = ["FAILS_BELOW", "answered_share", "carried", "sections"]

FAILS_BELOW = 0.98
"""Share of requests answered within the slo below which a server does not carry a population."""
NAMES = {
    "openpi": "openpi-server 0.1.0",
    "takt openpi": "Takt, openpi door",
    "lerobot": "LeRobot 0.4.4 policy server",
    "takt lerobot": "Takt, LeRobot door",
}
PAIRS = (("openpi", "takt openpi"), ("lerobot", "takt lerobot"))
CLIENTS = {
    "openpi": (
        "Clients: openpi-client 0.1.2, unmodified, one connection per robot, two chunks a second"
        " each, whatever the answers do. A chunk that was to be asked for while the robot still"
        " waited counts as not answered, and so does a refusal; the robot goes on."
    ),
    "lerobot": (
        "Clients: LeRobot's `RobotClient`, unmodified, all in one process, 16 Hz, chunks of 16, the"
        " next one wanted at half. A robot that waits longer than half a second for a chunk counts"
        " as having missed one more with each half second. Latency is from wanting a chunk to"
        " having its own. The stock server has its own settings: four threads, and a thirtieth of a"
        " second for every chunk at least."
    ),
}


def answered_share(cell: Mapping[str, Any]) -> float:
    """Share of a turn's requests that were answered within the slo; of a dead server none."""
    return 0.0 if "dead" in cell or not cell["issued"] else cell["within"] / cell["issued"]


def sections(found: Found, missing: Sequence[str]) -> str:
    """The section; ``missing`` are the kinds of servers that no interpreter was named for."""
    turns = [cell for cell in found.values() if "server" in cell]
    lines = ["## Beside the stock servers", "", _ABOUT]
    for stock, ours in PAIRS:
        lines += ["", f"### {NAMES[stock]}", ""]
        here = [turn for turn in turns if turn["server"] in (stock, ours)]
        if not here:
            why = "no interpreter with it was named" if stock in missing else "nothing was run yet"
            lines.append(f"{NAMES[stock]}: not measured; {why}.")
            continue
        lines += [CLIENTS[stock], "", *_table(here, stock, ours), "", _verdict(here, stock, ours)]
    return "\n".join(lines) + "\n"


def _table(turns: Sequence[Mapping[str, Any]], stock: str, ours: str) -> list[str]:
    lines = [
        "| robots | server | turns | within the slo | p50 ms | p99 ms | robots served in time |"
        " only own chunks | got another's | got nothing | cores of server, clients |",
        "|" + "---|" * 11,
    ]
    for robots in sorted({turn["robots"] for turn in turns}):
        for name in (stock, ours):
            cells = [turn for turn in turns if (turn["robots"], turn["server"]) == (robots, name)]
            if cells:
                lines.append(f"| {robots} | {NAMES[name]} | {_row(cells)} |")
    return lines


def _row(cells: Sequence[Mapping[str, Any]]) -> str:
    alive = [cell for cell in cells if "dead" not in cell]
    if not alive:
        return f"{len(cells)} | it died ({cells[0]['dead']})" + " | -" * 7
    share = f"{statistics.fmean(map(answered_share, cells)):.1%}"
    if len(alive) < len(cells):
        share += f", died in {len(cells) - len(alive)}"
    times = [_middle(alive, cut, "{:.0f}") for cut in ("p50", "p99")]
    counts = [_middle(alive, key, "{:g}") for key in ("in_time", "correct", "mixed_up", "silent")]
    cores = ", ".join(_middle(alive, key, "{:.2f}") for key in ("cores", "client_cores"))
    return " | ".join([str(len(cells)), share, *times, *counts, cores])


def _middle(cells: Sequence[Mapping[str, Any]], key: str, form: str) -> str:
    known = [cell[key] for cell in cells if cell[key] is not None]
    return form.format(statistics.median(known)) if known else "-"


def carried(turns: Sequence[Mapping[str, Any]], server: str) -> int:
    """Most robots, of the populations measured, that a server carries with all smaller ones."""
    best = 0
    for robots in sorted({turn["robots"] for turn in turns if turn["server"] == server}):
        cells = [turn for turn in turns if (turn["robots"], turn["server"]) == (robots, server)]
        if statistics.fmean(map(answered_share, cells)) < FAILS_BELOW:
            break
        best = robots
    return best


def _verdict(turns: Sequence[Mapping[str, Any]], stock: str, ours: str) -> str:
    theirs, mine = carried(turns, stock), carried(turns, ours)
    mixed = [turn for turn in turns if turn["server"] == stock and turn.get("mixed_up")]
    text = (
        f"Of the populations measured, {NAMES[stock]} carries {_robots(theirs)} at"
        f" {FAILS_BELOW:.0%} and Takt {_robots(mine)}"
    )
    text += f", {mine / theirs:.1f} times as many." if theirs and mine else "."
    if mixed:
        first = min(mixed, key=lambda turn: turn["robots"])
        text += (
            f" From {first['robots']} robots on {NAMES[stock]} gave robots the chunks of others:"
            " it keeps one observation, whoever it is from, and gives its chunk to whoever polls"
            " next."
        )
    return text


def _robots(count: int) -> str:
    if not count:
        return "none of them"
    return "one robot" if count == 1 else f"{count} robots"


_ABOUT = (
    "The same graphs of `mini` in OpenVINO, in the same number format and with one thread to a"
    " launch, behind each server; servers took turns on the same cores as their clients. A robot"
    " is *served in time* when it got only its own chunks, 98 % of them within the slo, on its own"
    " clock. Whose chunk came is seen: at the openpi doors each robot has an observation and a"
    " noise of its own, so its chunk is known before it asks; LeRobot's replies bear the time stamp"
    " of the observation they were computed from. Clients of one kind share a process: where it"
    " uses nearly a core, the latencies are its own too."
)
