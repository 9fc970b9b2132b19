"""Are the numbers true? What Takt predicts beside what is measured, on one page.

    python benchmarks/truth/run.py                 # everything; goes on where it was stopped
    python benchmarks/truth/run.py --only paced    # one part
    python benchmarks/truth/run.py --quick         # each part in its short form, no page
    python benchmarks/truth/run.py --page          # only the page, from what is known

Every cell that was measured is a line of ``build/truth/full.jsonl``; run the same command again
after a stop or a failure, and only what is missing is measured. ``--fresh`` forgets what the chosen
parts have found. The full form writes ``benchmarks/results/truth.json`` and
``docs/results/truth.md`` from what is known by then, whatever is missing.

Measure on a computer with nothing else to do: a cell that was measured beside another program says
so in its load, and should be measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks._record import RESULTS, circumstances, write
from benchmarks.truth.page import page_of
from benchmarks.truth.part import Cell, Part

__all__ = ["MODULES", "Run", "State", "parts_of"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "truth.md"
RESULT = RESULTS / "truth.json"
FOLDER = ROOT / "build" / "truth"
MODULES = {"paced": "paced_devices", "cpu": "cpu_lanes", "stock": "stock_servers"}
"""Parts in the order of the page, and their modules."""
INTERPRETERS = {"openpi": "openpi-server, openpi-client", "lerobot": "lerobot 0.4.4"}
"""Options of the stock servers' part: what they name."""


@dataclass(slots=True)
class State:
    """What was found so far, in a file that grows by a line per cell.

    Args:
        path: The file.
    """

    path: Path
    found: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """By part, then by the key of the cell."""

    def read(self) -> None:
        """Take what is in the file; a line that was cut off by a stop is left out."""
        self.found.clear()
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            self.found.setdefault(entry["part"], {})[entry["key"]] = entry["result"]

    def keep(self, part: str, key: str, result: dict[str, Any]) -> None:
        """Note a cell."""
        self.found.setdefault(part, {})[key] = result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            # A line that a stop has cut off must not swallow this one.
            file.write(f"\n{json.dumps({'part': part, 'key': key, 'result': result})}\n")

    def forget(self, parts: Sequence[str]) -> None:
        """Drop what some parts have found."""
        kept = [
            json.dumps({"part": part, "key": key, "result": result})
            for part, cells in self.found.items()
            if part not in parts
            for key, result in cells.items()
        ]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        self.read()


@dataclass(slots=True, kw_only=True)
class Run:
    """Measures what is missing."""

    state: State
    folder: Path
    quick: bool
    end: float | None
    """Instant by which the last cell should be over; None: no limit."""
    commit: str
    """What is measured; kept with each cell, since a run may go on at a later one."""
    clock: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = print
    num_failed: int = 0

    def measure(self, part: Part) -> bool:
        """Measure the cells of ``part`` one after the other; whether all are known now."""
        failed: set[str] = set()
        while True:
            found = self.state.found.get(part.name, {})
            cells = part.cells(self.quick, found)
            missing = [cell for cell in cells if cell.key not in found and cell.key not in failed]
            if not missing:
                return not failed
            cell = missing[0]
            left = sum(it.seconds for it in missing)
            if self.end is not None and self.clock() + cell.seconds > self.end:
                self.say(f"{part.name}: the budget is used up; {len(missing)} cells are missing")
                return False
            self.say(
                f"{part.name} {len(cells) - len(missing) + 1} of {len(cells)},"
                f" {left / 60:.0f} min left: {cell.key}"
            )
            if not self._measure(part, cell):
                failed.add(cell.key)

    def _measure(self, part: Part, cell: Cell) -> bool:
        began, load = self.clock(), os.getloadavg()[0]
        try:
            found = self.state.found.get(part.name, {})
            result = dict(part.measure(cell, found, self.folder))
        except Exception:  # noqa: BLE001 - the other cells are still worth having
            traceback.print_exc()
            self.num_failed += 1
            return False
        took = round(self.clock() - began, 1)
        beside = {"took_s": took, "load": round(load, 2), "commit": self.commit}
        self.state.keep(part.name, cell.key, {**result, **beside})
        return True


def parts_of(names: Sequence[str]) -> list[Part]:
    """The parts of these names."""
    return [import_module(f"benchmarks.truth.{MODULES[name]}").PART for name in names]


def result_of(state: State, parts: Sequence[Part]) -> dict[str, Any]:
    """What is written down."""
    packages = sorted({package for part in parts for package in part.packages})
    return {
        "question": "are predicted and measured capacity the same, and is the choice the best",
        "circumstances": circumstances(seed=0, packages=packages),
        "parts": state.found,
    }


def main() -> int:
    """Measure what is missing, and write the page."""
    asked = arguments()
    import_module(f"benchmarks.truth.{MODULES['stock']}").PART.interpreters = {
        name: getattr(asked, name) for name in INTERPRETERS
    }
    folder = asked.folder or FOLDER
    state = State(folder / ("quick.jsonl" if asked.quick else "full.jsonl"))
    state.read()
    names = asked.only or [*MODULES]
    if asked.fresh:
        state.forget(names)
    end = None if asked.budget_minutes is None else time.monotonic() + 60 * asked.budget_minutes
    files = folder / ("quick" if asked.quick else "full")
    files.mkdir(parents=True, exist_ok=True)
    commit = str(circumstances(seed=None)["commit"])
    run = Run(state=state, folder=files, quick=asked.quick, end=end, commit=commit, say=say)
    is_complete = True
    try:
        for part in [] if asked.page else parts_of(names):
            is_complete &= run.measure(part)
    except KeyboardInterrupt:
        is_complete = False
        say("stopped; the same command goes on from here")
    parts = parts_of([*MODULES])
    result = result_of(state, parts)
    if asked.out is not None or not asked.quick:
        write(asked.out or RESULT, result)
    page = asked.page_file or (None if asked.quick else PAGE)
    if page is not None:
        page.write_text(page_of(result, parts), encoding="utf-8")
    for part in parts:
        for claim in part.claims(state.found.get(part.name, {})):
            verdict = "holds" if claim.holds else "DOES NOT HOLD"
            say(f"{'short form, no result: ' if asked.quick else ''}{verdict}: {claim.text}")
    return 0 if is_complete else 1


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description="Predicted beside measured capacity")
    parser.add_argument("--only", choices=[*MODULES], action="append", help="a part; repeatable")
    parser.add_argument("--quick", action="store_true", help="a short form, without the page")
    parser.add_argument("--budget-minutes", type=float, help="start no cell that takes longer")
    parser.add_argument("--fresh", action="store_true", help="forget what the parts have found")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--folder", type=Path, help="for the state; build/truth when absent")
    for name, packages in INTERPRETERS.items():
        text = f"interpreter with {packages} and OpenVINO; not measured when absent"
        parser.add_argument(f"--{name}", metavar="PYTHON", help=text)
    parser.add_argument("--out", type=Path, help="where to write the result")
    parser.add_argument("--page-file", type=Path, help="where to write the page")
    return parser.parse_args()


def say(text: str) -> None:
    """Print now: a log is read while the run goes on."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
