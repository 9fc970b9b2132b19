"""What a device is to carry, from options or a fleet file; times from a profile or a table."""

from pathlib import Path

import pytest

from takt.errors import ConfigError
from takt.hardware.measured import MeasuredProfile
from takt.runtime.profiling.machines import PacedMachine
from takt.runtime.profiling.median import Enough
from takt.runtime.profiling.profiler import Profiler
from takt.schema.serving import ServedModel
from takt.server.composition import DevicePlan
from takt.server.device_load import RATE_HZ, load_of_device, load_of_fleet
from takt.server.fleet_server import server_plan
from takt.units import ms

SERVED = ServedModel(
    name="smolvla",
    policy="paced:smolvla",
    options={"prefix_sizes": (1,), "denoise_sizes": (1, 4)},
    slo_ms=70,
)
FLEET = """
models:
  smolvla: {slo_ms: 66, prefix_sizes: [1], denoise_sizes: [1, 4]}
profiles: {measured: smolvla.json}
devices:
  left: {paced: h100, paced_seed: 4, profile: measured, models: [smolvla], formation: auto}
robots:
  - {model: smolvla, count: 3, rate_hz: 2}
"""


@pytest.fixture(scope="module")
def measured() -> MeasuredProfile:
    machine = PacedMachine("h100", 4)
    profiler = Profiler(machine, machine.load([SERVED]), enough=Enough())
    profiled = profiler.run(machine.identity())
    machine.close()
    return profiled.profile


@pytest.fixture
def folder(measured: MeasuredProfile, tmp_path: Path) -> Path:
    measured.write(tmp_path / "smolvla.json")
    (tmp_path / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    return tmp_path


def test_a_measured_profile_gives_the_times_and_the_options_give_the_slo(
    folder: Path, measured: MeasuredProfile
) -> None:
    path = str(folder / "smolvla.json")
    device = DevicePlan(models=(SERVED,), paced="h100", profile_path=path)

    load = load_of_device(device, {"smolvla": 5})

    assert load.models[0].slo == ms(70)
    assert load.profile.to_json() == measured.profile.to_json()
    (group,) = load.robots
    assert (group.count, group.rate_hz, group.layout) == (5, RATE_HZ, 3)


def test_without_a_profile_a_paced_device_has_its_table() -> None:
    load = load_of_device(DevicePlan(models=(SERVED,), paced="h100"), {"smolvla": 5})

    assert load.models[0].denoise_sizes == (1, 4)
    assert load.profile.units == 132


def test_cores_without_a_profile_have_no_times_to_choose_by() -> None:
    mini = ServedModel(name="mini", policy="mini")

    with pytest.raises(ConfigError, match="needs times to choose by; takt profile measures them"):
        load_of_device(DevicePlan(models=(mini,)), {"mini": 1})


def test_robots_of_a_model_that_is_not_served_are_refused() -> None:
    with pytest.raises(ConfigError, match="robots 'pi0': no such model; it serves: smolvla"):
        load_of_device(DevicePlan(models=(SERVED,), paced="h100"), {"pi0": 1})


def test_a_fleet_file_reads_the_profile_it_names(folder: Path, measured: MeasuredProfile) -> None:
    load = load_of_fleet(folder / "fleet.yaml", "left")

    assert load.models[0].slo == ms(66)
    assert load.profile.to_json() == measured.profile.to_json()
    assert [group.count for group in load.robots] == [3]
    assert load.robots[0].layout == 3


def test_a_fleet_file_says_how_widely_the_launches_of_a_device_are_spread(folder: Path) -> None:
    spread = FLEET.replace("formation: auto", "formation: auto, spread: 0.03")
    (folder / "spread.yaml").write_text(spread)

    assert load_of_fleet(folder / "spread.yaml", "left").spread == 0.03
    assert load_of_fleet(folder / "fleet.yaml", "left").spread == 0


def test_the_server_of_a_fleet_file_believes_its_profile(folder: Path) -> None:
    (device,) = server_plan(folder / "fleet.yaml", cores=(0,)).devices

    assert device.profile_path == str((folder / "smolvla.json").resolve())
    assert device.formation == "auto"


def test_a_profile_that_is_not_there_is_refused_with_the_device(folder: Path) -> None:
    (folder / "smolvla.json").unlink()

    with pytest.raises(ConfigError, match=r"devices\.left: .*smolvla\.json: cannot be read"):
        load_of_fleet(folder / "fleet.yaml", "left")
