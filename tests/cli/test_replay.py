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

    said, lines = capsys.readouterr(), 2 * len(text.splitlines())
    assert said.out == f"{lines} lines, the same decisions\n"
    assert said.err == f"takt: {trace}: its last line is cut off: left out\n"


def test_a_file_without_a_trace_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")

    assert main(["replay", str(empty)]) == 1

    assert "no trace in it" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["replay", "trace"])
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"event":"foo"}', "no event 'foo'"),
        ('{"event":"cancel","seq":1}', "'at'"),
        ('{"event":"finish","at":1}', "expected a key 'lane'"),
        (
            '{"event":"decide","at":"soon","launches":[],"wake_at":null}',
            "expected whole nanoseconds",
        ),
        ("{}", "expected a key 'event'"),
        ("robots", "is not JSON"),
    ],
)
def test_a_line_that_is_no_event_is_named_with_its_file_and_its_number(
    trace: Path, command: str, line: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = trace.read_text()
    trace.write_text(f"{text}{text.splitlines()[0]}\n{line}\n")  # in the second trace of the file
    capsys.readouterr()

    assert main([command, str(trace)]) == 1

    said = capsys.readouterr().err
    assert said.startswith(f"takt: {trace}: line {len(text.splitlines()) + 2} ")
    assert why in said
    assert "Error(" not in said


@pytest.mark.parametrize("command", ["replay", "trace"])
def test_a_request_that_cannot_be_is_named_with_its_file(
    trace: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with trace.open("a") as file:
        file.write('{"event":"finish","at":9000000000000,"lane":[7,0],"failed":[]}\n')
    capsys.readouterr()

    assert main([command, str(trace)]) == 1

    assert capsys.readouterr().err.startswith(f"takt: {trace}: ")


@pytest.mark.parametrize("command", ["replay", "trace"])
def test_what_is_no_file_of_text_is_one_line(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    binary = tmp_path / "t.bin"
    binary.write_bytes(b"\x80\x81\n")

    assert main([command, str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"takt: {tmp_path}: is a folder; expected a trace\n"
    assert main([command, str(binary)]) == 1
    assert capsys.readouterr().err == (
        f"takt: {binary}: not a text file in UTF-8; expected a trace\n"
    )
