"""Runs the commands of the paced part: ``takt profile``, ``plan``, ``serve`` and ``bench``.

Everything a person could type. A fleet file is written once per contestant; it is what is planned,
and the same file is served.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import yaml
from benchmarks._processes import cpu_s
from benchmarks.truth._commands import takt

from takt.cli.driving.server_process import serving
from takt.policies.mini.replay import load_recordings
from takt.policies.stand_in import STAND_INS
from takt.units import SECOND

__all__ = [
    "LaunchTimes",
    "bench",
    "cpu_shares",
    "fleet_file",
    "launch_times",
    "layout_of",
    "process_times",
    "served",
    "with_handover",
]

_READY = 60 * SECOND


def layout_of(architecture: str) -> int:
    """Layout of the rows that ``takt bench`` makes a model of this architecture compute."""
    stand_in = STAND_INS[architecture]
    return max(
        stand_in.layout_of(len(stand_in.cameras), recording.instruction)
        for recording in load_recordings()
    )


def fleet_file(
    planned: Mapping[str, Any],
    *,
    gpu: str,
    seed: int,
    profile: str,
    networks: Mapping[str, Mapping[str, float]],
    spread: float,
) -> str:
    """A contestant as a fleet file.

    Args:
        planned: What ``takt plan --json`` said of the profile.
        gpu: The paced device.
        seed: Of the stranger.
        profile: File that ``takt profile`` wrote.
        networks: By model, ``up_ms`` and ``down_ms``: what a request takes outside the device.
        spread: Of its launches.
    """
    names = [*planned["models"]]
    (formation,) = planned["formation"]
    (options,) = planned["options"].values()
    return yaml.safe_dump(
        {
            "models": {
                name: {
                    "slo_ms": planned["models"][name]["slo_ms"],
                    "prefix_sizes": planned["prefix_sizes"][name],
                    "denoise_sizes": planned["denoise_sizes"][name],
                }
                for name in names
            },
            "profiles": {"measured": profile},
            "devices": {
                "gpu": {
                    "paced": gpu,
                    "paced_seed": seed,
                    "profile": "measured",
                    "models": names,
                    "formation": formation,
                    "options": options,
                    "spread": spread,
                }
            },
            "gateways": {"front": {"openpi": 0}},
            "robots": [
                {
                    "model": name,
                    "count": 1,
                    "rate_hz": 2,
                    "supersede": True,
                    "layout": layout_of(name),
                    "network": {"kind": "constant", **networks[name]},
                }
                for name in names
            ],
        },
        sort_keys=False,
    )


@contextmanager
def served(options: Sequence[str]) -> Generator[str]:
    """A server for as long as the block lasts; its address."""
    with serving(options) as server:
        yield server.wait_until_ready(_READY)


def bench(
    address: str, robots: Mapping[str, int], *, epochs: int, seconds: float, folder: Path
) -> dict[str, Any]:
    """What ``takt bench`` says, and what the server's processes used meanwhile."""
    before = process_times(os.getpid())
    began = os.times().elapsed
    said = takt(
        *("bench", "--server", address, "--json", "--deadline", "slo"),
        *(f"--robots={model}={count}" for model, count in robots.items() if count),
        *("--epochs", str(epochs), "--seconds", f"{seconds:g}", "--warm-up-seconds", "0.5"),
        folder=folder,
        log="bench",
    )
    wall = os.times().elapsed - began
    return {**json.loads(said), "cpu": cpu_shares(before, process_times(os.getpid()), wall)}


class LaunchTimes(NamedTuple):
    """How launches in a server differ from the medians of a profile."""

    handover_ms: float
    """How much longer they take, the median: from the end of a launch to the start of what follows,
    this computer's waking, the worker's decision and its messages."""
    spread: float
    """Standard deviation around that, as a share of the profiled time."""


def launch_times(trace: Iterable[str], profile: Mapping[str, Any]) -> LaunchTimes:
    """Compare the launches of a server with a profile.

    Args:
        trace: Of a scheduler whose launches run one at a time.
        profile: File that ``takt profile`` wrote, for models called by their architecture.

    Raises:
        StatisticsError: Nothing was launched.
    """
    solo = {tuple(row[:5]): row[5] for row in profile["profile"]["solo"]}
    running: dict[int, tuple[int, int]] = {}
    found: list[tuple[int, int]] = []
    for event in map(json.loads, trace):
        if event.get("event") == "finish":
            began, expected = running.pop(event["lane"][1])
            found.append((event["at"] - began - expected, expected))
        for (_, stage), model, _, size, layout, share in event.get("launches", ()):
            running[stage] = event["at"], solo[model, stage, layout, size, share]
    handover = median(longer for longer, _ in found)
    middle = [(longer - handover) / expected for longer, expected in found]
    # Of a normal distribution, half of all lie within 0.6745 standard deviations.
    return LaunchTimes(handover / 1e6, median(map(abs, middle)) / 0.6745)


def with_handover(profile: Mapping[str, Any], handover_ms: float) -> dict[str, Any]:
    """A profile whose launches take longer alone; slowdowns are ratios and stay."""
    times = profile["profile"]
    solo = [[*row[:5], row[5] + round(handover_ms * 1e6)] for row in times["solo"]]
    return {**profile, "profile": {**times, "solo": solo}}


def cpu_shares(
    before: Mapping[str, float], after: Mapping[str, float], wall: float
) -> dict[str, float]:
    """Cores that each kind of process used between two looks."""
    return {
        kind: round((after[kind] - used) / wall, 3)
        for kind, used in before.items()
        if kind in after
    }


def process_times(parent: int) -> dict[str, float]:
    """Processor seconds of the gateways and workers below a process so far."""
    times: dict[str, float] = {}
    for process in _below(parent, dict(_parents())):
        kind = _kind(process)
        if kind is not None:
            times[kind] = times.get(kind, 0.0) + cpu_s(process)
    return times


def _parents() -> Iterable[tuple[int, int]]:
    """Each process and its parent."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        yield int(path.parent.name), int(fields[1])


def _below(parent: int, parents: Mapping[int, int]) -> list[int]:
    children = [pid for pid, of in parents.items() if of == parent]
    return [*children, *(pid for child in children for pid in _below(child, parents))]


def _kind(process: int) -> str | None:
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return None
    kinds = ("gateway", "worker")
    return next((kind for kind in kinds if f"takt.server.{kind}_process" in command), None)
