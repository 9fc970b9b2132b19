"""What would only end a child is refused before there is one."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.hardware.test_measured import PROFILE

from takt.cli.serve import Serve
from takt.cli.serve_checks import (
    check_cores,
    check_formation,
    check_installed,
    check_policies,
    check_profile,
    check_traces,
)
from takt.errors import ConfigError, UsageError
from takt.server.composition import GatewayPlan, ServerPlan


def plan_of(*models: str) -> ServerPlan:
    return Serve(model=models).plan()


def test_cores_of_this_process_are_let_through_and_others_named() -> None:
    check_cores("prefix_cores", os.sched_getaffinity(0))

    with pytest.raises(ConfigError, match=r"^--prefix-cores: no core 9999 here; usable: \d"):
        check_cores("prefix_cores", (9999,))


def test_a_server_none_of_whose_policies_exists_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^model mni: no policy .*mni'; known: echo, mini, or"):
        check_policies(plan_of("mni", "ehco"))


def test_one_policy_that_may_exist_is_enough(tmp_path: Path) -> None:
    for policy in ("echo", "mini", f"arm={tmp_path}"):
        check_policies(plan_of(policy, "mni"))
    check_policies(Serve(model=("pi0",), paced="h100").plan())


def test_a_misspelt_formation_is_refused_with_those_there_are() -> None:
    (device,) = plan_of("echo").devices
    check_formation(device)

    with pytest.raises(ConfigError, match="no formation 'lockstepp'; known: auto, "):
        check_formation(replace(device, formation="lockstepp"))


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed(plan_of("echo"))
    monkeypatch.setitem(sys.modules, "picows", None)

    with pytest.raises(UsageError, match="takt serve needs picows, which comes with"):
        check_installed(plan_of("echo"))


def test_a_profile_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (device,) = plan_of("echo").devices
    check_profile(device, None)

    with pytest.raises(ConfigError, match=r"^--profile .*no\.json: cannot be read"):
        check_profile(replace(device, profile_path=str(tmp_path / "no.json")), None)


def test_a_profile_without_a_model_is_named_with_what_names_it(tmp_path: Path) -> None:
    (device,) = plan_of("echo").devices
    path = tmp_path / "cpu.json"
    PROFILE.write(path)

    for fleet, named in ((None, "--profile"), (Path("a.yaml"), "--fleet a.yaml: devices.0:")):
        said = f"{named} {path}: the profile has no model 'echo'; it has: fold"
        with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
            check_profile(replace(device, profile_path=str(path)), fleet)


def test_traces_of_several_devices_are_no_file_that_the_server_reads(tmp_path: Path) -> None:
    profile = tmp_path / "run-right.jsonl"
    profile.touch()
    (device,) = Serve(model=("pi0",), paced="h100").plan().devices
    devices = tuple(
        replace(device, name=name, trace_path=str(tmp_path / f"run-{name}.jsonl"))
        for name in ("left", "right")
    )
    plan = ServerPlan(devices=devices, gateways=(GatewayPlan(devices=("left", "right")),))
    asked = tmp_path / "run.jsonl"

    check_traces(plan, asked, None)
    with pytest.raises(UsageError, match=r"^--trace .*run-right\.jsonl: is the file that is read"):
        check_traces(plan, asked, profile)
    with pytest.raises(UsageError, match=r"^--trace /dev/full: is no ordinary file"):
        check_traces(plan, Path("/dev/full"))


def test_the_trace_of_one_device_may_be_a_device(tmp_path: Path) -> None:
    check_traces(Serve(model=("echo",), trace=Path("/dev/null")).plan(), Path("/dev/null"))

    profile = tmp_path / "times.json"
    profile.write_text("times")
    plan = Serve(model=("pi0",), paced="h100", profile=profile, trace=profile).plan()
    with pytest.raises(UsageError, match="is the file that is read"):
        check_traces(plan, profile)
