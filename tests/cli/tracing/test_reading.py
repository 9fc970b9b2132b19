import json
from pathlib import Path

import pytest
from tests.cli.tracing.made import SERVED_AND_SUPERSEDED, lines_of, setup, setup_line

from takt.cli.tracing.reading import file_lines, read_trace
from takt.core.events import Cancel, Moved, Switched
from takt.core.trace import Setup
from takt.errors import UsageError


def test_what_was_written_is_read_again() -> None:
    events = [
        *SERVED_AND_SUPERSEDED,
        Cancel(6_000_000_000, 3),
        Moved(6_000_000_001, 3, 0, 1, 7),
        Switched(6_000_000_002, json.loads(json.dumps(setup("flowing").to_json()))),
    ]

    made, *read = read_trace(lines_of((setup(), events)))

    assert isinstance(made, Setup)
    assert made.to_json() == setup().to_json()
    assert read == events


def test_a_file_may_hold_several_traces() -> None:
    lines = lines_of((setup(), SERVED_AND_SUPERSEDED), (setup("flowing"), ()))

    setups = [part for part in read_trace(lines) if isinstance(part, Setup)]

    assert [made.formation for made in setups] == ["lockstep", "flowing"]


def test_a_last_line_that_a_kill_cut_off_is_left_out() -> None:
    lines = [*lines_of((setup(), SERVED_AND_SUPERSEDED)), '{"event":"dec']

    assert len([*read_trace(lines)]) == 1 + len(SERVED_AND_SUPERSEDED)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("robots\n", "line 2 is not JSON"),
        ("[1]\n", "line 2: expected an object"),
        ('{"event":"dance","at":1}\n', "line 2 is no line of a trace: no event 'dance'"),
        ('{"event":"cancel","at":1}\n', "line 2 is no line of a trace"),
        ('{"event":"finish","at":1}\n', "line 2 is no line of a trace: expected a key 'lane'"),
        ('{"event":"cancel","at":"now","seq":1}\n', "expected whole nanoseconds, got 'now'"),
        ('{"event":"decide","at":1,"launches":[[1]],"wake_at":null}\n', "line 2 is no line"),
        ('{"event":"ended","at":1,"seq":1,"phase":"bored"}\n', "bored"),
        ('{"takt_trace":1,"setup":{}}\n', "line 2 is no line of a trace: not a setup"),
        ('{"takt_trace":9,"setup":{}}\n', "expected a trace of version 1, got 9"),
    ],
)
def test_a_line_that_is_none_of_a_trace_is_named(line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        list(read_trace([setup_line(), line]))


def test_events_without_a_setup_are_no_trace() -> None:
    with pytest.raises(UsageError, match="expected the setup"):
        list(read_trace(['{"event":"cancel","at":1,"seq":1}\n']))


def test_only_whole_lines_of_a_file_are_read_and_a_cut_one_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("one\ntwo\n")
    assert [*file_lines(path)] == ["one\n", "two\n"]
    assert capsys.readouterr().err == ""

    path.write_text("one\ntw")
    assert [*file_lines(path)] == ["one\n"]
    assert capsys.readouterr().err == f"takt: {path}: its last line is cut off: left out\n"


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")

    for name, said in (
        ("none", "no such trace"),
        (".", "is a folder"),
        ("binary", "not a text file"),
    ):
        with pytest.raises(UsageError, match=said):
            list(file_lines(tmp_path / name))
