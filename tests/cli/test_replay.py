"""``takt replay``."""

from __future__ import annotations

from pathlib import Path

import pytest

from takt.cli.main import main

FLEET = Path(__file__).parents[2] / "examples" / "fleet.yaml"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    target = tmp_path / "run.jsonl"
    assert main(["simulate", str(FLEET), "--seconds", "2", "--trace", str(target)]) == 0
    return tmp_path / "run-gpu0.jsonl"


def test_a_recorded_trace_decides_again(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()

    assert main(["replay", str(trace)]) == 0

    lines = len(trace.read_text().splitlines())
    assert capsys.readouterr().out == f"{lines} lines, the same decisions\n"


def test_a_changed_decision_is_named(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = trace.read_text()
    changed = text.replace('"wake_at":null', '"wake_at":1', 1)
    assert changed != text
    trace.write_text(changed)

    assert main(["replay", str(trace)]) == 1

    assert "differs" in capsys.readouterr().err


def test_a_missing_trace_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "nowhere.jsonl"]) == 1

    assert capsys.readouterr().err == "takt: nowhere.jsonl: no such trace\n"


def test_all_traces_of_a_file_are_replayed(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = trace.read_text()
    trace.write_text(text + text + '{"event":"dec')  # a worker that was killed, and its successor
    capsys.readouterr()

    assert main(["replay", str(trace)]) == 0

    lines = 2 * len(text.splitlines())
    assert capsys.readouterr().out == f"{lines} lines, the same decisions\n"


def test_a_file_without_a_trace_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")

    assert main(["replay", str(empty)]) == 1

    assert "no trace in it" in capsys.readouterr().err
