"""``takt plan`` from the question to the answer, with short draws."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.core.driving import model_of, profile_of
from tests.hardware.test_measured import PROFILE as MEASURED

from takt.cli.main import main
from takt.core.trace import Setup
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.knee import Job, serially
from takt.sim.network import Wifi7Network
from takt.sim.processes import processes
from takt.units import SECOND

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SHORT = ("--seeds", "4", "--seconds", "2")
FLEET = """
profiles:
  gpu:
    architectures:
      pi0: {prefix_ms: {1: 40}, denoise_ms: {1: 60}}
    slowdown: {prefix: 2.0, denoise: 2.0}
models:
  pick: {architecture: pi0, slo_ms: 400}
devices:
  left: {profile: gpu, models: [pick], formation: monolithic}
robots:
  - {model: pick, count: 2, rate_hz: 2}
network: {kind: constant, up_ms: 2, down_ms: 3}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET, encoding="utf-8")
    return path


def planned(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["plan", "--json", *SHORT, *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_device_and_a_model_give_robots_formation_launches_and_shares(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = planned(capsys, "--hardware", "rtx-4090", "--model", "pi0", "--formation", "lockstep")

    assert found["simulated"] is True
    assert found["formation"] == ["lockstep"]
    assert 1 <= found["robots_at_target"] <= 40
    assert abs(found["robots_at_target_mean"] - found["robots_at_target"]) <= 3
    low, high = found["interval"]
    assert low <= high
    held = [row for row in found["attainment"] if row["robots"] <= found["robots_at_target"]]
    assert all(row["bound"] >= 0.98 for row in held)
    assert sum(found["launch_sizes"]["prefix"].values()) == pytest.approx(1, abs=0.01)
    assert all(int(share) <= 128 for share in found["shares"])


def test_equal_questions_have_equal_answers(
    capsys: pytest.CaptureFixture[str], fleet: Path
) -> None:
    assert planned(capsys, str(fleet)) == planned(capsys, str(fleet))


def test_a_fleet_file_is_scaled_and_driven_as_it_says(
    capsys: pytest.CaptureFixture[str], fleet: Path
) -> None:
    """100 ms a request and nothing overlaps: five robots at 2 Hz are all it can do."""
    found = planned(capsys, str(fleet))

    assert found["formation"] == ["monolithic"]
    assert 2 <= found["robots_at_target"] <= 5


def test_a_mix_that_does_not_fit_says_what_it_would_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mix = planned(
        capsys,
        *("--hardware", "rtx-4090", "--formation", "monolithic"),
        *("--robots", "pi0=30", "--robots", "groot-n1.7=30"),
    )["mix"]

    assert mix["robots"] == {"pi0": 30, "groot-n1.7": 30}
    assert mix["fits"] is False
    assert mix["devices_needed"] >= 2
    assert 0 < mix["part_that_fits"] < 1
    assert set(mix["robots_that_fit"]) == {"pi0", "groot-n1.7"}
    assert sum(mix["robots_that_fit"].values()) < 60


def test_a_promise_that_nobody_can_keep_is_said_to_be_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    how = ("--hardware", "rtx-4090", "--model", "pi0", "--slo-ms", "5", "--formation", "monolithic")

    assert main(["plan", *SHORT, *how]) == 0

    out = " ".join(capsys.readouterr().out.split())
    assert "0 robots hold 98%" in out
    assert "pi0 cannot be on time: 5 ms are promised, and a chunk takes" in out


def test_formations_a_fleet_file_has_no_times_for_are_left_out_by_name(
    capsys: pytest.CaptureFixture[str], fleet: Path
) -> None:
    found = planned(capsys, str(fleet), "--formation", "auto")

    assert set(found["left_out"]) == {"monolithic (replicas 2)", "step_admission"}
    assert "architectures.pi0.steps: expected" in found["left_out"]["step_admission"]


def test_a_formation_a_fleet_file_has_no_times_for_is_refused_when_asked_for(
    capsys: pytest.CaptureFixture[str], fleet: Path
) -> None:
    assert main(["plan", str(fleet), *SHORT, "--formation", "disaggregated"]) == 1

    assert "profile 'gpu': architectures.pi0.transfer_ms: expected" in capsys.readouterr().err


def test_formations_whose_shares_were_not_measured_are_left_out_by_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    MEASURED.write(tmp_path / "cpu.json")
    path = tmp_path / "fleet.yaml"
    path.write_text(
        """
profiles: {cpu: cpu.json}
models:
  fold: {policy: mini, slo_ms: 80}
devices:
  left: {profile: cpu, models: [fold], formation: monolithic}
robots:
  - {model: fold, count: 2, rate_hz: 2}
network: {kind: constant, up_ms: 2, down_ms: 3}
"""
    )

    found = planned(capsys, str(path), "--formation", "monolithic")

    assert found["left_out"] == {
        "monolithic (replicas 2)": "the profile has no share of which 2 fit"
    }


def test_the_answer_fits_the_screen(capsys: pytest.CaptureFixture[str], fleet: Path) -> None:
    assert main(["plan", str(fleet), *SHORT]) == 0

    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines())
    for word in ("robots hold 98%", "simulated", "monolithic", "the worst of them gets"):
        assert word in " ".join(out.split())


def test_where_a_simulation_runs_changes_no_figure() -> None:
    model = model_of(slo=100_000_000)
    setup = Setup(models=(model,), profile=profile_of(model))
    robots = RobotGroup(model="pi0", count=1, device="gpu", rate_hz=2.0)
    fleet = Fleet(devices={"gpu": setup}, robots=(robots,), network=Wifi7Network())
    jobs = [Job(3, seed, 2 * SECOND, 0) for seed in range(4)]

    with processes() as pool:
        assert pool.runner(fleet)(jobs) == serially(fleet)(jobs)
