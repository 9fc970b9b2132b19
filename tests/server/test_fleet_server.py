"""A fleet file as the plan of a server: what is served where, and what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from takt.errors import ConfigError
from takt.server.composition import ServerPlan
from takt.server.fleet_file import FleetFile
from takt.server.fleet_server import server_plan


def content() -> dict[str, Any]:
    """Two paced devices behind two gateways, to be changed in one place."""
    return {
        "models": {
            "fold": {"architecture": "pi0", "slo_ms": 156},
            "smolvla": {"slo_ms": 65, "denoise_sizes": [1, 4]},
        },
        "devices": {
            "left": {"paced": "rtx-pro-6000", "models": ["fold", "smolvla"]},
            "right": {"paced": "h100", "paced_seed": 4, "models": ["fold"], "formation": "flowing"},
        },
        "gateways": {
            "front": {"openpi": 8000},
            "back": {"openpi": 8001, "devices": ["right"], "host": "::1"},
        },
        "robots": [{"model": "fold", "count": 4, "rate_hz": 2, "device": "left"}],
    }


def planned(tmp_path: Path, what: dict[str, Any], **options: Any) -> ServerPlan:  # noqa: ANN401
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(what, sort_keys=False), encoding="utf-8")
    return server_plan(path, cores=(0, 1), **options)


def refusal(tmp_path: Path, what: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        planned(tmp_path, what)
    return str(refused.value).removeprefix(f"{tmp_path / 'fleet.yaml'}: ")


def test_a_file_says_what_is_served_where(tmp_path: Path) -> None:
    plan = planned(tmp_path, content(), token="secret")

    left, right = plan.devices
    assert [(m.name, m.policy, m.slo_ms) for m in left.models] == [
        ("fold", "paced:pi0", 156.0),
        ("smolvla", "paced:smolvla", 65.0),
    ]
    assert (right.paced, right.paced_seed, right.formation) == ("h100", 4, "flowing")
    front, back = plan.gateways
    assert (front.devices, front.host, front.openpi_port) == (
        ("left", "right"),
        "127.0.0.1",
        8000,
    )
    assert (back.devices, back.host, back.openpi_port) == (("right",), "::1", 8001)
    assert plan.token == "secret"


def test_the_served_models_run_the_sizes_the_simulated_ones_do(tmp_path: Path) -> None:
    plan = planned(tmp_path, content())
    simulated = FleetFile.read(tmp_path / "fleet.yaml").fleet().devices["left"].models

    for served, model in zip(plan.devices[0].models, simulated, strict=True):
        assert tuple(served.options["prefix_sizes"]) == model.prefix_sizes
        assert tuple(served.options["denoise_sizes"]) == model.denoise_sizes
    assert simulated[1].denoise_sizes == (1, 4)


def test_without_gateways_one_sends_to_every_device(tmp_path: Path) -> None:
    what = {key: value for key, value in content().items() if key != "gateways"}

    (only,) = planned(tmp_path, what).gateways

    assert (only.devices, only.openpi_port) == (("left", "right"), 8000)


def test_cores_of_this_computer_serve_policies_that_compute(tmp_path: Path) -> None:
    what = {
        "models": {
            "echo": {"slo_ms": 100, "options": {"horizon": 16}},
            "mine": {"slo_ms": 100, "policy": "checkpoints/mine"},
        },
        "devices": {
            "a": {"cpu": {"prefix_cores": [0], "denoise_cores": [1]}, "models": ["echo", "mine"]},
        },
    }

    (device,) = planned(tmp_path, what).devices

    assert (device.prefix_cores, device.denoise_cores, device.paced) == ((0,), (1,), None)
    echo, mine = device.models
    assert (echo.policy, echo.options) == ("echo", {"horizon": 16})
    assert mine.policy == str(tmp_path / "checkpoints" / "mine")


def test_a_cpu_without_cores_gets_those_of_the_process(tmp_path: Path) -> None:
    what = {"models": {"echo": {"slo_ms": 9}}, "devices": {"a": {"cpu": {}, "models": ["echo"]}}}

    (device,) = planned(tmp_path, what).devices

    assert (device.prefix_cores, device.denoise_cores) == ((0,), (1,))


def test_each_device_has_a_trace_of_its_own(tmp_path: Path) -> None:
    plan = planned(tmp_path, content(), trace=tmp_path / "run.jsonl")

    assert [Path(device.trace_path or "").name for device in plan.devices] == [
        "run-left.jsonl",
        "run-right.jsonl",
    ]


IMPOSSIBLE = [
    (
        {"devices": {"gpu": {"profile": "made-up", "models": ["fold"]}}, "gateways": {}},
        "devices.gpu: cpu: missing; this version serves cores of this computer (cpu) and paced"
        " devices",
    ),
    (
        {"devices": {"gpu": {"paced": "h100", "cpu": {}, "models": ["fold"]}}, "gateways": {}},
        "devices.gpu: cpu: a paced device computes nothing; leave one of the two out",
    ),
    (
        {"devices": {"gpu": {"paced": "h100", "models": ["pick"]}}, "gateways": {}},
        "devices.gpu: no model 'pick' in models: fold, smolvla",
    ),
    (
        {
            "models": {"pi9": {"slo_ms": 1}},
            "devices": {"gpu": {"paced": "h100", "models": ["pi9"]}},
        },
        "devices.gpu: no stand-in for 'pi9'; there are: pi0, pi05, smolvla, groot-n1.7, xr0",
    ),
    (
        {"gateways": {"front": {"devices": ["middle"]}}},
        "gateways.front.devices: no device 'middle'; there are: left, right",
    ),
    (
        {"gateways": {"front": {"devices": ["left"]}}},
        "devices.right: no gateway sends to it",
    ),
    (
        {"gateways": {"front": {"openpi": 99999}}},
        "gateways.front.openpi: expected `int` <= 65535",
    ),
    ({"gateways": {"front": {"port": 1}}}, "gateways.front.port: unknown key"),
]


@pytest.mark.parametrize(("change", "words"), IMPOSSIBLE, ids=[w[:40] for _, w in IMPOSSIBLE])
def test_what_cannot_be_served_is_refused_with_its_place(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    assert refusal(tmp_path, {**content(), **change}) == words


def test_a_model_on_a_paced_device_and_on_a_cpu_is_refused(tmp_path: Path) -> None:
    what = content()
    what["models"]["fold"]["policy"] = "echo"

    assert "devices.left: model 'fold': a paced device runs stand-ins" in refusal(tmp_path, what)


def test_with_model_roots_a_policy_is_a_path_inside_them(tmp_path: Path) -> None:
    fold = tmp_path / "models" / "team" / "fold"
    fold.mkdir(parents=True)
    (fold / "config.json").write_text("{}")
    what: dict[str, Any] = {
        "models": {"fold": {"policy": "team/fold", "slo_ms": 100, "options": {"engine": "torch"}}},
        "devices": {"cpu": {"cpu": {}, "models": ["fold"]}},
        "model_roots": ["models"],
    }

    (model,) = planned(tmp_path, what).devices[0].models

    assert model.policy == str(fold)
    assert model.options == {"engine": "torch", "root": str(tmp_path / "models")}
    for outside in ("../fleet.yaml", "/etc", "https://hub/fold"):
        what["models"]["fold"]["policy"] = outside
        assert "model " in refusal(tmp_path, what)


def test_model_roots_are_folders_also_where_no_policy_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    for root, why in (("none", "no such folder"), ("file", "is no folder")):
        said = refusal(tmp_path, {**content(), "model_roots": [".", root]})
        assert said == f"model_roots: {tmp_path / root}: {why}"
