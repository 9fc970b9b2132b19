"""The page is made from a result alone: whole, in part, or from nothing at all."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.client.async_page import NOT_RUN, page_of, write_page
from benchmarks.client.async_plan import QUICK, WALL_SETTINGS, WHOLE, Cell, Plan, State, WallCell
from benchmarks.client.async_plots import PLOTS
from benchmarks.client.async_result import result_of

PLAN = replace(
    WHOLE,
    tasks=("drawer-open-v3",),
    starts=2,
    answer_ticks=(8.0, 4.0),
    hard_tasks=("window-open-v3",),
    hard_answer_ticks=(8.0,),
)
CIRCUMSTANCES = {"cpu": "a processor", "cores": 2, "python": "CPython", "commit": "abc"}


def episode(cell: Cell | WallCell, start: int) -> dict[str, Any]:
    is_waiting = cell.arm in ("local", "remote", "g0")
    return {
        "task": cell.task,
        "start": start,
        "is_solved": start == 0 or is_waiting,
        "ticks": 152 if is_waiting else 88 + start,
        "first_action_tick": 8,
        "executed": 80,
        "inferences": 10,
        "starved": 64 * is_waiting,
        "splice_steps": [0.5, 0.25],
        "splice_shifts": [0.125],
        "jerk_m_s3": 1.5,
        "ages": [3.0, 4.0],
        "queue": "0 0 8 7 6 5",
    }


def recorded(path: Path, plan: Plan, *, wall: bool = True) -> Mapping[str, Any]:
    """A result as the benchmark would write it."""
    state = State(path, plan)
    for cell in plan.cells():
        episodes = [episode(cell, start) for start in range(plan.starts)]
        state.add(cell.key, {"took_s": 6.0, "episodes": episodes})
    if wall:
        state.add(WALL_SETTINGS, {"step_and_picture_p90_ms": 40.0, "period_ms": 120.0, "starts": 1})
        for cell in plan.wall_cells():
            one = [episode(cell, 0)]
            record = {"period_ms": 120.0, "answer_ms": 900.0, "episodes": one, "predicted": one}
            state.add(cell.key, record)
    result = {"circumstances": CIRCUMSTANCES, **result_of(plan, state)}
    return json.loads(json.dumps(result))


@pytest.mark.slow
def test_the_page_has_every_part_and_every_plot(tmp_path: Path) -> None:
    result = recorded(tmp_path / "s.jsonl", PLAN)

    write_page(result, page=tmp_path / "page.md", images=tmp_path)

    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "<!--" not in text
    assert NOT_RUN not in text
    assert "2.00 times sequential" not in text  # 144 ticks over 80
    assert "1.80 times sequential, 90% of the bound 2.00" in text
    assert set(re.findall(r"images/(async-[\w-]+\.svg)", text)) == set(PLOTS)
    for plot in PLOTS:
        assert (tmp_path / plot).read_text(encoding="utf-8").startswith("<?xml")
        assert (tmp_path / plot).stat().st_size < 150_000


def test_what_must_be_shown_is_judged_by_the_figures(tmp_path: Path) -> None:
    result = recorded(tmp_path / "s.jsonl", PLAN)

    held = {(line["what"], line["x"]): line["holds"] for line in result["must_show"]}

    assert held["about one", 1.0]
    assert held["bound", 1.0]
    assert not held["inferences", 2.0]  # as many as g = 0.7


def test_what_was_not_run_says_so(tmp_path: Path) -> None:
    result = recorded(tmp_path / "s.jsonl", replace(PLAN, hard_tasks=()), wall=False)

    text = page_of(result)

    assert text.count(NOT_RUN) == 3  # harder tasks, wall settings, wall clock


def test_a_result_without_any_figure_makes_a_page_too(tmp_path: Path) -> None:
    result = {
        "circumstances": CIRCUMSTANCES,
        **result_of(QUICK, State(tmp_path / "s.jsonl", QUICK)),
    }

    write_page(result, page=tmp_path / "page.md", images=tmp_path)

    assert NOT_RUN in (tmp_path / "page.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_same_result_makes_the_same_files(tmp_path: Path) -> None:
    result = recorded(tmp_path / "s.jsonl", PLAN)

    for folder in ("one", "other"):
        write_page(result, page=tmp_path / folder / "page.md", images=tmp_path / folder)

    for name in ("page.md", *PLOTS):
        one, other = (tmp_path / folder / name for folder in ("one", "other"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("name", ["async_page.md"])
def test_the_prose_has_no_figure_of_its_own(name: str) -> None:
    prose = (Path(__file__).parents[2] / "benchmarks" / "client" / name).read_text("utf-8")

    assert not re.search(r"\d+(\.\d+)? times as fast", prose)
