"""The options of ``takt serve``; tests/integration/test_serve.py runs the server."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from takt.cli.main import main
from takt.cli.serve import Serve
from takt.errors import ConfigError
from takt.server.formation_choice import ChosenDevice
from takt.sim.shapes import Shape


def test_a_model_may_be_served_under_another_name() -> None:
    plan = Serve(model=("fold=echo", "mini")).plan()

    assert [(model.name, model.policy) for model in plan.devices[0].models] == [
        ("fold", "echo"),
        ("mini", "mini"),
    ]


def test_a_path_is_resolved_before_processes_start(tmp_path: Path) -> None:
    plan = Serve(model=(f"fold={tmp_path}/x/../checkpoint",)).plan()

    assert plan.devices[0].models[0].policy == str(tmp_path / "checkpoint")


def test_engine_and_number_format_reach_checkpoints_alone(tmp_path: Path) -> None:
    (tmp_path / "fold").mkdir()
    (tmp_path / "fold" / "config.json").write_text("{}")

    plan = Serve(
        model=(f"fold={tmp_path}/fold", "mini"),
        engine="openvino",
        precision="bf16",
        engine_cache=tmp_path,
    ).plan()

    fold, mini = plan.devices[0].models
    expected = {"engine": "openvino", "precision": "bf16", "cache": str(tmp_path)}
    assert (fold.options, mini.options) == (expected, {})


def test_with_a_model_root_paths_are_inside_it_and_nothing_outside_is_read(tmp_path: Path) -> None:
    (tmp_path / "root" / "team" / "fold").mkdir(parents=True)
    (tmp_path / "root" / "team" / "fold" / "config.json").write_text("{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "other")
    root = tmp_path / "root"

    (fold,) = Serve(model=("fold=team/fold",), model_root=(root,)).plan().devices[0].models

    assert (fold.policy, fold.options) == (str(root / "team" / "fold"), {"root": str(root)})
    for outside in ("../other", str(tmp_path / "other"), "link", "https://hub/fold", "none"):
        with pytest.raises(ConfigError, match=r"^model "):
            Serve(model=(f"fold={outside}",), model_root=(root,)).plan()


def test_echo_options_reach_echo_alone() -> None:
    plan = Serve(model=("echo", "mini"), latency_ms=20.0, horizon=16).plan()

    assert plan.devices[0].models[0].options == {"latency_ms": 20.0, "horizon": 16}
    assert plan.devices[0].models[1].options == {}


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


@pytest.mark.parametrize("door", ["groot", "http"])
def test_a_door_that_does_not_exist_is_refused_by_name(
    door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--model", "echo", f"--{door}", "8080"]) == 1

    assert f"no {door} door" in capsys.readouterr().err


# Paced devices and fleet files


def test_a_paced_server_serves_stand_ins_with_the_promises_of_their_architectures() -> None:
    plan = Serve(model=("pi0", "fold=smolvla"), paced="h100", paced_seed=2).plan()

    (device,) = plan.devices
    assert [(m.name, m.policy, m.slo_ms) for m in device.models] == [
        ("pi0", "paced:pi0", 156.0),
        ("fold", "paced:smolvla", 65.0),
    ]
    assert (device.paced, device.paced_seed, device.prefix_cores) == ("h100", 2, ())


def test_a_promise_of_the_operator_comes_first() -> None:
    plan = Serve(model=("pi0",), paced="h100", slo_ms=99.0).plan()

    assert plan.devices[0].models[0].slo_ms == 99.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--paced", "h100", "--model", "mini"], "no stand-in for 'mini'; there are: pi0"),
        (["--paced", "rtx-9000", "--model", "pi0"], "no device 'rtx-9000'; known: rtx-pro-6000"),
        (["--paced-seed", "1", "--model", "echo"], "--paced-seed is for --paced GPU"),
        (["--fleet", "fleet.yaml", "--model", "echo"], "--model: the fleet file says what"),
        (["--fleet", "fleet.yaml", "--slo-ms", "9"], "--slo-ms: the fleet file says what"),
        (["--fleet", "no-such.yaml"], "no-such.yaml: no such file"),
    ],
)
def test_what_cannot_be_paced_or_served_is_one_line_and_status_1(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *options]) == 1

    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_misspelt_formation_is_answered_with_those_that_can_be_served(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", "--model", "echo", "--formation", "waltz"]) == 1

    said = "takt: no formation 'waltz'; known: auto, monolithic, lockstep, flowing\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("given", ["-1", "0.5", "86401", "nan", "inf"])
def test_a_dwell_that_is_none_is_refused_before_anything_is_chosen(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--model", "echo", f"--reevaluate-seconds={given}"]) == 1

    said = capsys.readouterr().err
    assert said.startswith("takt: --reevaluate-seconds must be ")
    assert said.endswith(f"got {given}\n")


def test_formations_are_reconsidered_where_one_was_chosen_and_not_with_0() -> None:
    serve = Serve(model=("pi0",), paced="h100", formation="auto", robots=("pi0=2",))
    (device,) = serve.plan().devices
    load = serve._load(device)
    shape = Shape(formation="lockstep", prefix_limit=1, denoise_limit=4)
    chosen = [ChosenDevice(device, load, shape)]

    assert serve._reevaluation(chosen) is not None
    assert serve._reevaluation([]) is None
    assert dataclasses.replace(serve, reevaluate_seconds=0)._reevaluation(chosen) is None


@pytest.mark.parametrize(("missing", "options"), [("picows", []), ("grpc", ["--lerobot", "0"])])
def test_a_package_that_is_missing_is_one_line_before_anything_starts(
    missing: str,
    options: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)

    assert main(["serve", "--model", "echo", "--openpi", "0", *options]) == 1

    err = capsys.readouterr().err
    assert err.startswith(f"takt: takt serve needs {missing}, which comes with: pip install ")
    assert err.count("\n") == 1
