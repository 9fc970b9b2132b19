"""What the experiment on asynchronous inference runs, and the file it goes on from.

Start reading at :class:`Plan`, then :class:`State`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.client.async_robot import ARMS, EXECUTED_IN_SEQUENCE, Conditions

from takt.errors import UsageError
from takt.units import Nanos, ms

__all__ = ["QUICK", "WALL_SETTINGS", "WHOLE", "Cell", "Plan", "State", "WallCell"]

WALL_SETTINGS = "wall settings"
"""Key of the period that was measured once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Every start of one task, with one arm at one c, in virtual time."""

    task: str
    c: float
    arm: str

    @property
    def key(self) -> str:
        """Its name in the state file."""
        return f"sweep {self.task} c={self.c:g} {self.arm}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WallCell:
    """Some starts of one task, with one arm and one declared answer time, on the wall clock."""

    task: str
    answer_ticks: float
    arm: str

    @property
    def key(self) -> str:
        """Its name in the state file."""
        return f"wall {self.task} {self.answer_ticks:g} {self.arm}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run. A file made by another plan is refused."""

    tasks: tuple[str, ...]
    starts: int
    answer_ticks: tuple[float, ...]
    """Answer times in periods; c is one over it."""
    arms: tuple[str, ...]
    hard_tasks: tuple[str, ...]
    """Tasks that `mini` does not solve from every start."""
    hard_answer_ticks: tuple[float, ...]
    hard_arms: tuple[str, ...]
    wall_task: str
    wall_starts: int
    wall_answer_ticks: tuple[float, ...]
    """Each half-way between two ticks, so that a few milliseconds decide nothing."""
    wall_period_ms: float = 100.0
    """Shortest ``environment_dt`` on the wall clock."""
    seed: int = 3
    """Of starts and goals; `mini` was trained on 1000 and evaluated on 2."""
    period_ms: float = 62.5
    """``environment_dt``: the 16 Hz that `mini` was trained for."""
    network_ms: float = 62.5
    """Allowance for the network, both ways, within every remote answer's time, and at most half of
    that. Less than a period would end within the tick that an answer waits for anyway."""
    most_ticks: int = 480
    """Environment time of an episode, for every arm alike; Meta-World itself ends at 500."""

    def cells(self) -> list[Cell]:
        """The sweep, task by task, because a process has one task open."""
        return [
            *_crossed(self.tasks, self.answer_ticks, self.arms),
            *_crossed(self.hard_tasks, self.hard_answer_ticks, self.hard_arms),
        ]

    def wall_cells(self) -> list[WallCell]:
        """The points on the wall clock."""
        return [
            WallCell(task=self.wall_task, answer_ticks=ticks, arm=arm)
            for ticks in self.wall_answer_ticks
            for arm in ("remote", "g0.7", "ours", "stock")
        ]

    @property
    def period(self) -> Nanos:
        """``environment_dt``."""
        return ms(self.period_ms)

    def conditions(self, c: float) -> Conditions:
        """What an episode of the sweep is run under."""
        answer = round(self.period / c)
        return Conditions(
            period=self.period,
            answer=answer,
            network=min(ms(self.network_ms), answer // 2),
            most_ticks=self.most_ticks,
        )

    def in_words(self) -> dict[str, Any]:
        """For the head of a file."""
        return {**asdict(self), "executed_in_sequence": EXECUTED_IN_SEQUENCE}


# Of the nine tasks `mini` solves these four from all 25 starts of its evaluation, see
# docs/results/mini.md: where the policy fails by itself, speeds say little.
WHOLE = Plan(
    tasks=("drawer-open-v3", "drawer-close-v3", "handle-press-v3", "coffee-button-v3"),
    starts=16,
    answer_ticks=(10.0, 8.0, 6.0, 4.0, 2.0, 1.0, 2.0 / 3.0),
    arms=tuple(ARMS),
    hard_tasks=("faucet-open-v3", "window-open-v3"),
    hard_answer_ticks=(8.0, 4.0),
    hard_arms=("remote", "g0.7", "ours"),
    wall_task="drawer-open-v3",
    wall_starts=4,
    wall_answer_ticks=(7.5, 3.5, 1.5),
)
QUICK = Plan(
    tasks=("coffee-button-v3",),
    starts=2,
    answer_ticks=(8.0, 4.0),
    arms=("local", "remote", "g0", "g0.7", "ours"),
    hard_tasks=(),
    hard_answer_ticks=(),
    hard_arms=(),
    wall_task="coffee-button-v3",
    wall_starts=1,
    wall_answer_ticks=(3.5,),
)


def _crossed(
    tasks: Sequence[str], answer_ticks: Sequence[float], arms: Sequence[str]
) -> list[Cell]:
    return [
        Cell(task=task, c=1.0 / ticks, arm=arm)
        for task in tasks
        for ticks in answer_ticks
        for arm in arms
    ]


class State:
    """Results so far, one JSON object a line, appended when a cell is done.

    Args:
        path: The file; it is made when it is missing. A last line that was cut off is left out.
        plan: What is run.

    Raises:
        UsageError: The file belongs to another plan.
    """

    def __init__(self, path: Path, plan: Plan) -> None:
        self._path = path
        self.done: dict[str, Mapping[str, Any]] = {}
        """Records by the key of their cell."""
        head = json.loads(json.dumps({"plan": plan.in_words()}))
        lines = list(_lines(path)) if path.exists() else []
        if not lines:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(head) + "\n", encoding="utf-8")
        elif lines[0] != head:
            raise UsageError(f"{path} holds results of another plan; move it away or name another")
        self.done.update({line["key"]: line for line in lines[1:]})
        _end_with_newline(path)

    def add(self, key: str, record: Mapping[str, Any]) -> None:
        """A cell is done."""
        line = {"key": key, **record}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.done[key] = line

    def missing(self, cells: Sequence[Any]) -> list[Any]:
        """Those of the cells that are not done, in order."""
        return [cell for cell in cells if cell.key not in self.done]

    def episodes(self, cell: Cell | WallCell) -> list[Mapping[str, Any]]:
        """Episodes of a cell; none while it is not done."""
        return list(self.done.get(cell.key, {}).get("episodes", []))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):  # a line that was cut off
            yield json.loads(line)


def _end_with_newline(path: Path) -> None:
    """So that what is appended after a line that was cut off is a line of its own."""
    if not path.read_bytes().endswith(b"\n"):
        with path.open("a", encoding="utf-8") as file:
            file.write("\n")
