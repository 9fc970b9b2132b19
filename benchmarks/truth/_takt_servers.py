"""Takt's servers of these comparisons: kept up between turns, so that starting them costs once.

A server nobody asks waits without polling, so those whose turn it is not disturb nobody. Fleet
files say what they serve: `mini` on two cores, with the profile that was measured here.

Start reading at :meth:`TaktServers.get`.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._processes import cpu_s
from benchmarks.truth._commands import takt

from takt.cli.driving.server_process import ServerProcess, serving
from takt.units import SECOND

__all__ = [
    "CONTROL_HZ",
    "FORMATIONS",
    "RATE_HZ",
    "SLO_MS",
    "Running",
    "TaktServers",
    "around",
    "predict",
    "used_s",
    "write_fleet",
]

FORMATIONS = ("lockstep", "flowing", "monolithic")
"""What a worker on two cores can be told to run."""
SLO_MS = 150.0
RATE_HZ, CONTROL_HZ, HORIZON = 2.0, 16.0, 16
AROUND = 0.25
"""How far the populations beside the predicted knee lie from it."""
_PROFILE = "mini-profile.json"
_READY_TIMEOUT = 300 * SECOND
_QUICK = ("--relative-error", "0.2", "--most-runs", "8", "--most-seconds", "0.3")


def around(knee: int) -> tuple[int, int, int]:
    """The knee between the two populations measured beside it."""
    step = max(1, round(knee * AROUND))
    return max(1, knee - step), max(2, knee), max(3, knee + step)


def predict(folder: Path, *, is_quick: bool, is_fresh: bool) -> dict[str, Any]:
    """Profile `mini` on this machine, and plan each formation with the profile and nothing else.

    The knee is that of the formation that carries most.

    Args:
        folder: Receives the profile.
        is_quick: Whether a rough profile and a short plan will do.
        is_fresh: Whether to forget what was measured before.
    """
    options = ["--model", "mini", "--slo-ms", f"{SLO_MS:g}", "--out", str(folder / _PROFILE)]
    if is_fresh:
        options.append("--refresh")
    takt("profile", *options, *(_QUICK if is_quick else ()), folder=folder, log="profile")
    draws = ("--seeds", "3", "--seconds", "5") if is_quick else ("--seeds", "10", "--seconds", "20")
    plans = {
        formation: json.loads(
            takt(
                *("plan", str(write_fleet(folder, formation, formation, 1)), "--json", *draws),
                folder=folder,
                log="plan",
            )
        )["robots_at_target"]
        for formation in FORMATIONS
    }
    header = json.loads((folder / _PROFILE).read_text())["header"]
    return {
        "knee": max(1, *plans.values()),
        "planned": plans,
        "precision": header["precision"],
        "device": header["device"],
        "engine": header["engine"],
        "cut_off": len(header["cut_off"]),
    }


def write_fleet(folder: Path, name: str, formation: str, robots: int) -> Path:
    """A fleet file of `mini` on this computer's cores, for ``takt plan`` and ``takt serve``."""
    fleet = {
        "models": {"mini": {"slo_ms": SLO_MS}},
        "profiles": {"measured": _PROFILE},
        "devices": {
            "cpu": {
                "profile": "measured",
                "cpu": {},
                "models": ["mini"],
                "formation": formation,
            }
        },
        "robots": [
            {
                "model": "mini",
                "count": robots,
                "rate_hz": RATE_HZ,
                "control_hz": CONTROL_HZ,
                "horizon": HORIZON,
                "deadline": "queue",
            }
        ],
        "gateways": {"doors": {"openpi": 0, "lerobot": 0}},
        "network": {"kind": "constant", "up_ms": 0.0, "down_ms": 0.0},
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(fleet, indent=1))  # JSON is YAML too
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server that is up."""

    server: ServerProcess
    openpi: str
    """``host:port``."""

    @property
    def lerobot(self) -> str:
        """``host:port``."""
        return self.server.wait_for_door("lerobot", _READY_TIMEOUT)

    @property
    def reason(self) -> str | None:
        """Why it has its formation, in its own words."""
        said = [e["reason"] for e in self.server.events if e.get("event") == "formation_chosen"]
        return said[0] if said else None

    @property
    def pids(self) -> dict[str, int]:
        """Its processes: ``gateway``, ``worker``."""
        found = ((e.get("process"), e.get("pid")) for e in self.server.events)
        return {
            str(name).partition("-")[0]: pid for name, pid in found if name and isinstance(pid, int)
        }

    @property
    def is_alive(self) -> bool:
        """Whether its processes run."""
        return all(Path(f"/proc/{pid}").exists() for pid in self.pids.values())


class TaktServers:
    """Servers by name, started when they are first asked for."""

    def __init__(self) -> None:
        self._up: dict[str, tuple[ExitStack, Running]] = {}
        atexit.register(self.close)

    def get(self, folder: Path, formation: str, robots: int) -> Running:
        """The server with this formation, up and ready.

        Args:
            folder: Where the profile lies.
            formation: A formation, or ``auto``.
            robots: Declared robots, by which ``auto`` chooses.
        """
        if formation in self._up and self._up[formation][1].is_alive:
            return self._up[formation][1]
        self._close(formation)
        fleet = write_fleet(folder, formation, formation, robots)
        stack = ExitStack()
        server = stack.enter_context(serving(["--fleet", str(fleet)]))
        try:
            running = Running(server=server, openpi=server.wait_until_ready(_READY_TIMEOUT))
        except BaseException:
            stack.close()
            raise
        self._up[formation] = stack, running
        return running

    def close(self) -> None:
        """Stop all of them."""
        for name in [*self._up]:
            self._close(name)

    def _close(self, name: str) -> None:
        if name in self._up:
            self._up.pop(name)[0].close()


def used_s(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds of processes so far, by name; of one that has ended none."""
    return {name: _used_s(pid) for name, pid in pids.items()}


def _used_s(pid: int) -> float:
    try:
        return cpu_s(pid)
    except OSError:
        return 0.0
