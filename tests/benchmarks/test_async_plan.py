from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.client.async_plan import QUICK, WHOLE, State

from takt.errors import UsageError


def test_the_whole_plan_spans_c_from_a_tenth_to_one_and_a_half_and_has_every_arm() -> None:
    cs = {cell.c for cell in WHOLE.cells()}

    assert min(cs) == pytest.approx(0.1)
    assert max(cs) == pytest.approx(1.5)
    assert {"local", "remote", "g0", "g0.3", "g0.5", "g0.7", "g0.9", "ours"} <= set(WHOLE.arms)


def test_no_two_cells_share_a_name() -> None:
    keys = [cell.key for cell in [*WHOLE.cells(), *WHOLE.wall_cells()]]

    assert len(set(keys)) == len(keys)


def test_what_is_done_is_not_run_again(tmp_path: Path) -> None:
    first, *rest = QUICK.cells()
    State(tmp_path / "s.jsonl", QUICK).add(first.key, {"episodes": [{"start": 0}]})

    again = State(tmp_path / "s.jsonl", QUICK)

    assert again.missing(QUICK.cells()) == rest
    assert again.episodes(first) == [{"start": 0}]


def test_a_line_that_was_cut_off_is_run_again_and_spoils_none_after_it(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    first, second = QUICK.cells()[:2]
    State(path, QUICK).add(first.key, {"episodes": []})
    path.write_text(path.read_text()[:-10])

    State(path, QUICK).add(second.key, {"episodes": []})

    again = State(path, QUICK)
    assert first in again.missing(QUICK.cells())
    assert second not in again.missing(QUICK.cells())


def test_a_file_of_another_plan_is_refused(tmp_path: Path) -> None:
    State(tmp_path / "s.jsonl", QUICK)

    with pytest.raises(UsageError, match="another plan"):
        State(tmp_path / "s.jsonl", replace(QUICK, starts=3))
