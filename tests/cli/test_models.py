"""``takt models`` asks a server for what its options say."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from takt.cli.main import main

ROW = {
    "model": "arm",
    "policy": "echo",
    "slo_ms": 50.0,
    "worker": "worker-0",
    "state": "ready",
    "formation": "flowing",
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int | None, Mapping[str, Any]]]:
    """What servers are asked."""
    requests: list[tuple[int | None, Mapping[str, Any]]] = []

    def ask(pid: int | None, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        requests.append((pid, request))
        return [dict(ROW)]

    monkeypatch.setattr("takt.cli.models.ask", ask)
    return requests


Asked = list[tuple[int | None, Mapping[str, Any]]]


def test_a_list_is_one_line_per_model(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list", "--server", "7"]) == 0

    assert asked == [(7, {"command": "list"})]
    assert capsys.readouterr().out.split() == ["arm", "worker-0", "flowing", "ready"]


def test_a_model_is_loaded_with_its_options(
    asked: Asked,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--slo-ms", "50", "--option", "latency_ms=5", "--option", "strict_spec=card.json"]

    assert main(["models", "load", "arm=echo", *options, "--json"]) == 0

    given = {"latency_ms": 5, "strict_spec": "card.json"}
    model = {"name": "arm", "policy": "echo", "options": given, "slo_ms": 50.0}
    where = {"worker": None, "folder": str(tmp_path)}
    assert asked == [(None, {"command": "load", "model": model, **where})]
    assert json.loads(capsys.readouterr().out) == ROW


def test_a_checkpoint_is_named_as_given_beside_the_folder_it_is_seen_from(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["models", "load", "arm=checkpoint", "--worker", "worker-1"]) == 0

    [(_, request)] = asked
    assert (request["model"]["policy"], request["folder"]) == ("checkpoint", str(tmp_path))
    assert request["worker"] == "worker-1"


def test_a_stand_in_is_no_path(asked: Asked) -> None:
    assert main(["models", "load", "q=paced:pi05"]) == 0

    [(_, request)] = asked
    assert request["model"]["policy"] == "paced:pi05"


def test_a_model_is_unloaded_by_its_name(asked: Asked) -> None:
    assert main(["models", "unload", "arm"]) == 0

    assert asked == [(None, {"command": "unload", "name": "arm"})]


@pytest.mark.parametrize("option", ["latency_ms", "=5"])
def test_an_option_without_key_and_value_is_refused(
    option: str, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "load", "arm=echo", "--option", option]) == 1

    assert "expected KEY=VALUE" in capsys.readouterr().err
    assert asked == []
