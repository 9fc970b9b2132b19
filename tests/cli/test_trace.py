"""``takt trace``."""

import json
from pathlib import Path

import pytest
from tests.cli.tracing.made import setup, setup_line, simulated

from takt.cli.main import main
from takt.core.trace import trace_lines


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("trace"), "--seconds", "2")


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["trace", *options]) == 1
    return capsys.readouterr().err


def test_a_summary_is_printed_unless_a_file_is_asked_for(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", str(trace)]) == 0

    assert "lockstep, earliest_deadline" in capsys.readouterr().out


def test_a_file_is_written_and_nothing_is_printed(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trace.json"

    assert main(["trace", str(trace), "--out", str(out)]) == 0

    printed, said = capsys.readouterr()
    assert printed == ""
    assert f"wrote {out}" in said
    assert json.loads(out.read_text())["traceEvents"]


def test_json_is_all_that_is_printed(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(trace), "--json"]) == 0

    (setup_found,) = json.loads(capsys.readouterr().out)["setups"]
    assert setup_found["formation"] == "lockstep"


def test_a_part_of_the_trace_is_shown(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trace.json"
    options = ("--from-seconds", "1", "--seconds", "0.5")

    assert main(["trace", str(trace), "--out", str(out), "--summary", *options]) == 0

    slices = [e for e in json.loads(out.read_text())["traceEvents"] if e["ph"] == "X"]
    assert slices
    assert all(e["ts"] < 1.5e6 and e["ts"] + e["dur"] >= 1e6 for e in slices)
    assert "s from 1 s on" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "magic"), [("t.png", b"\x89PNG"), ("t.svg", b"<?xml")])
def test_a_picture_is_drawn(trace: Path, tmp_path: Path, name: str, magic: bytes) -> None:
    assert main(["trace", str(trace), "--plot", str(tmp_path / name)]) == 0

    assert (tmp_path / name).read_bytes().startswith(magic)


def test_a_trace_that_is_none_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("robots\n")

    assert refused(capsys, str(path)) == f"takt: {path}: line 1 is not JSON: " + (
        "Expecting value: line 1 column 1 (char 0)\n"
    )
    assert refused(capsys, "nowhere.jsonl") == "takt: nowhere.jsonl: no such trace\n"


@pytest.fixture
def unused(tmp_path: Path) -> Path:
    """The trace of a server that served nobody."""
    path = tmp_path / "unused.jsonl"
    path.write_text("".join(f"{line}\n" for line in trace_lines(setup(), ())))
    return path


def test_a_trace_of_a_server_that_served_nobody_says_so(
    unused: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", str(unused)]) == 0
    assert capsys.readouterr().out == f"{unused}: no request came while it was recorded\n"

    assert main(["trace", str(unused), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"setups": []}


def test_nothing_is_written_where_nothing_happens(
    trace: Path, unused: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t.json"

    assert "no request came" in refused(capsys, str(unused), "--out", str(out))
    assert "in the time asked for" in refused(capsys, str(unused), "--seconds", "1")
    assert "in the time asked for" in refused(capsys, str(trace), "--from-seconds", "900")
    assert not out.exists()


def test_a_file_without_a_trace_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("")

    assert refused(capsys, str(path)) == f"takt: {path}: there is no trace in it\n"


def test_a_last_line_that_is_cut_off_is_said(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_text(trace.read_text() + '{"event":"dec')

    assert main(["trace", str(path), "--json"]) == 0
    cut = capsys.readouterr()
    assert main(["trace", str(trace), "--json"]) == 0
    whole = capsys.readouterr()

    assert cut.err == f"takt: {path}: its last line is cut off: left out\n"
    assert (whole.err, whole.out) == ("", cut.out)


def test_a_setup_that_is_none_is_named_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(setup_line() + '{"event":"switched","at":1,"setup":{}}\n')

    assert refused(capsys, str(path)).startswith(f"takt: {path}: not a setup: ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--plot", "p.pdf"), "--plot p.pdf: a plot ends in .png or .svg"),
        (("--plot", "nowhere/p.png"), "--plot nowhere/p.png: no folder nowhere"),
        (("--out", "nowhere/t.json"), "--out nowhere/t.json: no folder nowhere"),
        (("--from-seconds", "-1"), "--from-seconds must be at least 0"),
        (("--seconds", "0"), "--seconds must lie above 0"),
        (("--seconds", "nan"), "--seconds must lie above 0"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_the_trace_is_read(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, "nowhere.jsonl", *options)
