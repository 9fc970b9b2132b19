"""``takt hardware`` prints what was asked for and refuses the rest in one line."""

import json
from pathlib import Path

import pytest
import tyro

from takt.cli.hardware import Hardware
from takt.errors import ConfigError
from takt.hardware.report import CAVEAT


def run(*arguments: str) -> None:
    tyro.cli(Hardware, args=arguments).run()


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal wide enough that no cell is folded."""
    monkeypatch.setenv("COLUMNS", "240")


def test_it_prints_times_and_errors_of_what_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("--model", "pi0", "--model", "xr0", "--device", "rtx-4090")

    shown = capsys.readouterr().out
    assert shown.count(CAVEAT) == 2
    assert "3 cameras, 48 prompt tokens" in shown
    assert "arXiv 2602.12684" in shown
    assert "reported half: median error" in shown
    assert "smolvla" not in shown


def test_json_holds_the_same_with_its_caveat(capsys: pytest.CaptureFixture[str]) -> None:
    run("--json", "--device", "h100", "--model", "groot-n1.7", "--stack", "tuned")

    told = json.loads(capsys.readouterr().out)
    assert told["note"] == CAVEAT
    assert told["stack"] == "tuned"
    assert {row["device"] for row in told["stage_times"]} == {"h100"}
    for row in told["published"]:
        assert row["error"] == pytest.approx(
            row["predicted_ms"] / row["milliseconds"] - 1, abs=1e-3
        )


def test_without_a_published_figure_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    run("--device", "a100", "--model", "xr0")

    assert "no published latency of these can be compared" in capsys.readouterr().out


def test_json_without_a_published_figure_has_no_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("--json", "--device", "a100", "--model", "xr0")

    assert json.loads(capsys.readouterr().out)["reported_half"] is None


@pytest.mark.slow
def test_it_draws_the_plot_beside_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("--device", "h100", "--plot", str(tmp_path / "hardware.png"))

    assert (tmp_path / "hardware.png").stat().st_size > 10_000
    assert "Stage times" in capsys.readouterr().out


@pytest.mark.slow
def test_a_refit_prints_the_constants_in_use_beside_those_it_finds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("--refit")

    assert "launch_us.graph" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "pi9"], "no architecture 'pi9'; known: pi0"),
        (["--device", "tpu"], "no device 'tpu'; known: rtx-pro-6000"),
        (["--stack", "tvm"], "no stack 'tvm'; known: eager"),
        (["--json", "--refit"], "--json and --refit exclude each other"),
        (["--markdown", "--model", "pi0"], "--markdown shows everything"),
        (["--plot", "plot.pdf"], r"--plot plot\.pdf: a plot ends in \.png or \.svg"),
        (["--device", "a100", "--stack", "fp8"], "cannot multiply 8-bit"),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(arguments: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        run(*arguments)
