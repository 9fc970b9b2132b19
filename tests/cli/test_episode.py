import json
from pathlib import Path

import pytest
from tests.client.episodes import write_episode

from takt.cli.main import main


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    write_episode(path)
    return path


def test_an_episode_is_summed_up_for_a_person(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["episode", "show", str(log)]) == 0

    said = capsys.readouterr().out
    assert "arm-1" in said
    assert "holds within 500 ms" in said
    assert "round trip, ms" in said
    assert "active -> degraded: " in said
    assert "hold -> active: resume" in said


def test_an_episode_is_summed_up_for_programs(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["episode", "show", str(log), "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["is_complete"] is True


def test_an_incomplete_log_says_so(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text("\n".join(log.read_text().splitlines()[:1]))

    assert main(["episode", "show", str(log)]) == 0
    assert "incomplete" in capsys.readouterr().out


def test_what_moved_the_robot_at_an_instant_is_one_question(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["episode", "at", str(log), "500"]) == 0

    assert json.loads(capsys.readouterr().out)["state"] == "active"


def test_an_instant_outside_the_log_is_refused(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["episode", "at", str(log), "1e9"]) == 1
    assert "goes from 0 to" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_equal_logs_give_equal_plots(log: Path, tmp_path: Path, suffix: str) -> None:
    one, two = tmp_path / f"one.{suffix}", tmp_path / f"two.{suffix}"

    assert main(["episode", "show", str(log), "--plot", str(one)]) == 0
    assert main(["episode", "show", str(log), "--plot", str(two)]) == 0

    assert one.read_bytes() == two.read_bytes()
    assert one.stat().st_size > 1000


def test_a_plot_of_another_kind_is_refused(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["episode", "show", str(log), "--plot", "run.gif"]) == 1
    assert "ends in .png or .svg" in capsys.readouterr().err


def test_a_plot_that_cannot_be_written_is_refused(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["episode", "show", str(log), "--plot", str(tmp_path / "none" / "run.svg")]) == 1
    assert "no folder" in capsys.readouterr().err


def test_a_missing_log_is_one_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["episode", "show", "nowhere.jsonl"]) == 1
    assert capsys.readouterr().err == "takt: nowhere.jsonl: no such episode log\n"
