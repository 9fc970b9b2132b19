"""The options of ``takt serve``; tests/integration/test_serve.py runs the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from takt.cli.main import main
from takt.cli.serve import Serve
from takt.errors import ConfigError


def test_a_model_may_be_served_under_another_name() -> None:
    plan = Serve(model=("fold=echo", "mini")).plan()

    assert [(model.name, model.policy) for model in plan.models] == [
        ("fold", "echo"),
        ("mini", "mini"),
    ]


def test_a_path_is_resolved_before_processes_start(tmp_path: Path) -> None:
    plan = Serve(model=(f"fold={tmp_path}/x/../checkpoint",)).plan()

    assert plan.models[0].policy == str(tmp_path / "checkpoint")


def test_echo_options_reach_echo_alone() -> None:
    plan = Serve(model=("echo", "mini"), latency_ms=20.0, horizon=16).plan()

    assert plan.models[0].options == {"latency_ms": 20.0, "horizon": 16}
    assert plan.models[1].options == {}


def test_the_token_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")

    assert Serve(model=("echo",), token_file=file).plan().token == "secret"


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("\n")

    with pytest.raises(ConfigError, match="is empty"):
        Serve(model=("echo",), token_file=file).plan()


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKT_TOKEN", "from-environment")

    assert Serve(model=("echo",)).plan().token == "from-environment"


def test_no_model_is_one_line_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve"]) == 1

    assert capsys.readouterr().err == "takt: nothing to serve: give at least one --model\n"


@pytest.mark.parametrize("door", ["lerobot", "groot", "http"])
def test_a_door_that_does_not_exist_is_refused_by_name(
    door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--model", "echo", f"--{door}", "8080"]) == 1

    assert f"no {door} door" in capsys.readouterr().err
