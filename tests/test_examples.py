"""Every example works as it is: fleet files simulate, the profiles they name can be read."""

from pathlib import Path

import pytest

from takt.cli.main import main
from takt.server.fleet_file import FleetFile
from takt.server.hand_made import HandMadeProfile
from takt.server.yaml_file import read_yaml
from takt.sim.loop import simulate
from takt.units import SECOND

EXAMPLES = Path(__file__).parents[1] / "examples"
FLEETS = sorted(EXAMPLES.glob("*.yaml"))
PROFILES = sorted((EXAMPLES / "profiles").glob("*.yaml"))


def name_of(path: Path) -> str:
    return path.name


def test_there_are_examples() -> None:
    assert FLEETS
    assert PROFILES


@pytest.mark.parametrize("path", FLEETS, ids=name_of)
def test_an_example_fleet_simulates(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(path), "--seconds", "2"]) == 0
    assert "simulated" in capsys.readouterr().out


@pytest.mark.parametrize("path", FLEETS, ids=name_of)
def test_an_example_fleet_is_served_well(path: Path) -> None:
    run = simulate(FleetFile.read(path).fleet(), warm_up=SECOND, duration=5 * SECOND)

    met = sum(record.is_met for record in run.records)
    assert met / len(run.records) > 0.9


@pytest.mark.parametrize("path", FLEETS, ids=name_of)
def test_an_example_says_how_it_is_run(path: Path) -> None:
    assert f"takt simulate examples/{path.name}" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PROFILES, ids=name_of)
def test_an_example_profile_can_be_read(path: Path) -> None:
    assert read_yaml(path, HandMadeProfile).architectures
