"""The runner goes on where it was stopped, and one broken cell does not end it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.truth.page import LIMITS, page_of
from benchmarks.truth.part import Cell, Claim, Found
from benchmarks.truth.run import Run, State


class Counting:
    """Measures cells of which each but the first is known of only after the one before."""

    name = "paced"
    packages: Sequence[str] = ()

    def __init__(self, number: int = 3, broken: str = "") -> None:
        self.number = number
        self.broken = broken
        self.measured: list[str] = []

    def cells(self, quick: bool, found: Found) -> list[Cell]:
        known = 1 if quick else min(self.number, len(found) + 1)
        return [Cell(key=str(n), seconds=10) for n in range(known)]

    def measure(self, cell: Cell, found: Found, folder: Path) -> Mapping[str, Any]:
        if cell.key == self.broken:
            raise RuntimeError("no server")
        self.measured.append(cell.key)
        return {"twice": 2 * int(cell.key)}

    def claims(self, found: Found) -> list[Claim]:
        return [Claim(text=f"{len(found)} cells", holds=len(found) == self.number)] if found else []

    def section(self, found: Found) -> str:
        return f"## Counted\n\n{len(found)}" if found else ""


def run_of(path: Path, *, quick: bool = False, end: float | None = None) -> Run:
    state = State(path)
    state.read()
    return Run(
        state=state,
        folder=path.parent,
        quick=quick,
        end=end,
        commit="abc",
        clock=lambda: 0.0,
        say=lambda _: None,
    )


def test_a_run_measures_what_earlier_cells_ask_for(tmp_path: Path) -> None:
    run, part = run_of(tmp_path / "s.jsonl"), Counting()

    assert run.measure(part)
    assert part.measured == ["0", "1", "2"]
    assert run.state.found["paced"]["2"]["twice"] == 4


def test_a_second_run_measures_only_what_is_missing(tmp_path: Path) -> None:
    run_of(tmp_path / "s.jsonl").measure(Counting(2))
    again = Counting(4)

    run_of(tmp_path / "s.jsonl").measure(again)

    assert again.measured == ["2", "3"]


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    run_of(path).measure(Counting(2))
    path.write_text(path.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    again = Counting(2)

    run_of(path).measure(again)

    assert again.measured == ["1"]
    assert set(run_of(path).state.found["paced"]) == {"0", "1"}


def test_a_cell_that_fails_is_left_out_and_tried_again_by_the_next_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.jsonl"

    assert not run_of(path).measure(Counting(3, broken="1"))
    assert "no server" in capsys.readouterr().err

    again = Counting(3)
    assert run_of(path).measure(again)
    assert again.measured == ["1", "2"]


def test_no_cell_is_started_that_would_go_over_the_budget(tmp_path: Path) -> None:
    part = Counting()

    assert not run_of(tmp_path / "s.jsonl", end=9.0).measure(part)
    assert part.measured == []


def test_what_one_part_has_found_can_be_forgotten(tmp_path: Path) -> None:
    state = run_of(tmp_path / "s.jsonl").state
    state.keep("paced", "a", {})
    state.keep("cpu", "b", {})

    state.forget(["paced"])

    assert state.found == {"cpu": {"b": {}}}
    assert run_of(tmp_path / "s.jsonl").state.found == {"cpu": {"b": {}}}


def test_the_page_has_claims_first_and_says_what_is_missing() -> None:
    told = {"commit": "abc", "cores": 2, "cpu": "a CPU", "python": "CPython 3", "packages": {}}
    other = Counting()
    other.name = "cpu"

    cells = {"0": {"commit": "abc"}}

    page = page_of({"circumstances": told, "parts": {"paced": cells}}, [Counting(), other])

    assert page.startswith("# Predicted and measured\n")
    assert LIMITS in page
    assert "| **no** | 1 cells |" in page
    assert "Not measured yet: cpu." in page
    assert page.index("| claim |") < page.index("## Counted")


def test_the_page_says_at_which_commits_each_part_was_measured(tmp_path: Path) -> None:
    run = run_of(tmp_path / "s.jsonl")
    run.measure(Counting(2))
    run.commit = "def"
    run.measure(Counting(3))

    told = {"commit": "xyz", "cores": 2, "cpu": "a CPU", "python": "CPython 3", "packages": {}}
    page = page_of({"circumstances": told, "parts": run.state.found}, [Counting()])

    assert "Commits that were measured: paced at abc and def." in page
