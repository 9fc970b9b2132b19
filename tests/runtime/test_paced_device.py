"""A paced device: what the scheduler is told, and what a stranger's launches really take."""

import pytest

from takt.core.profile import FULL_SPEED, Profile
from takt.errors import ConfigError
from takt.hardware import model_for, profile_for
from takt.policies.interface import Placement
from takt.runtime.paced_device import SPREAD, PacedDevice, load_stand_in, perturbed
from takt.runtime.paced_lanes import PacedLanes
from takt.schema.serving import ServedModel
from takt.units import ms

PI0 = model_for("pi0", prefix_sizes=(1,), denoise_sizes=(1, 2))
SMOLVLA = model_for("smolvla", prefix_sizes=(1,), denoise_sizes=(1,))
TABLE = profile_for("rtx-pro-6000", [PI0])


def solo(profile: Profile) -> dict[tuple[object, ...], int]:
    rows: list[list[int]] = profile.to_json()["solo"]  # type: ignore[assignment]
    return {tuple(row[:5]): row[5] for row in rows}


def speeds(profile: Profile) -> list[list[int]]:
    return profile.to_json()["speed"]  # type: ignore[return-value]


class Watching:
    """Keeps the last table that lanes were given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table: Profile | None = None
        monkeypatch.setattr(PacedLanes, "pace", lambda _, profile: self.keep(profile))

    def keep(self, profile: Profile) -> None:
        self.table = profile


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Watching:
    return Watching(monkeypatch)


def paced(seed: int | None) -> PacedDevice:
    device = PacedDevice("rtx-pro-6000", seed)
    device.open_lanes(lambda _: None)
    return device


def test_a_device_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="no device 'rtx-9000'"):
        PacedDevice("rtx-9000")


def test_the_scheduler_and_the_lanes_have_one_table(watching: Watching) -> None:
    device = paced(None)

    assert device.pace([PI0]).to_json() == TABLE.to_json()
    assert watching.table is not None
    assert watching.table.to_json() == TABLE.to_json()
    assert device.vary(12345) == 12345
    device.close()


def test_the_scheduler_believes_the_table_of_a_stranger_too(watching: Watching) -> None:
    device = paced(3)

    assert device.pace([PI0]).to_json() == TABLE.to_json()
    assert watching.table is not None
    assert solo(watching.table) != solo(TABLE)
    device.close()


def test_a_model_that_was_unloaded_keeps_its_times_in_the_lanes(watching: Watching) -> None:
    device = paced(None)
    device.pace([PI0, SMOLVLA])

    told = device.pace([PI0])

    assert told.to_json() == TABLE.to_json()
    assert watching.table is not None
    assert {key[0] for key in solo(watching.table)} == {"pi0", "smolvla"}
    device.close()


def test_a_stranger_lies_within_a_fifth_of_the_table() -> None:
    stranger = perturbed(TABLE, 7)

    ratios = [time / solo(TABLE)[key] for key, time in solo(stranger).items()]
    assert 1 - SPREAD - 1e-3 <= min(ratios) < 0.9
    assert 1.1 < max(ratios) <= 1 + SPREAD + 1e-3
    for (_, _, speed), (_, _, known) in zip(speeds(stranger), speeds(TABLE), strict=True):
        assert known / (1 + SPREAD) - 1 <= speed <= min(FULL_SPEED, known / (1 - SPREAD) + 1)


def test_a_seed_makes_one_stranger_and_another_seed_another() -> None:
    assert perturbed(TABLE, 7).to_json() == perturbed(TABLE, 7).to_json()
    assert solo(perturbed(TABLE, 7)) != solo(perturbed(TABLE, 8))


def test_a_stranger_is_the_same_beside_other_models() -> None:
    both = solo(perturbed(profile_for("rtx-pro-6000", [PI0, SMOLVLA]), 7))

    assert solo(perturbed(TABLE, 7)).items() <= both.items()


def test_the_launches_of_a_stranger_vary_by_some_per_cent() -> None:
    device = PacedDevice("rtx-pro-6000", 1)
    times = [device.vary(ms(10)) for _ in range(400)]
    device.close()

    mean = sum(times) / len(times)
    spread = (sum((time - mean) ** 2 for time in times) / len(times)) ** 0.5
    assert mean == pytest.approx(ms(10), rel=0.01)
    assert spread == pytest.approx(ms(0.3), rel=0.2)


def test_a_stand_in_is_ready_at_once_and_scheduled_as_its_architecture() -> None:
    served = ServedModel(name="fold", policy="paced:pi0", slo_ms=120.0)

    loaded = load_stand_in(served, Placement(kv_slots=16))

    assert loaded.model == model_for("pi0", "fold", 120.0)
    assert loaded.spec.architecture == "paced:pi0"
    assert loaded.solo == {}


def test_a_stand_in_that_does_not_exist_is_refused() -> None:
    served = ServedModel(name="fold", policy="paced:pi9")

    with pytest.raises(ConfigError, match="no stand-in for 'pi9'; there are: pi0, pi05"):
        load_stand_in(served, Placement(kv_slots=16))


def test_a_device_whose_last_model_was_unloaded_goes_on(watching: Watching) -> None:
    device = paced(None)
    device.pace([PI0])

    assert solo(device.pace([])) == {}
    assert watching.table is not None
    assert solo(watching.table) == solo(TABLE)
    device.close()
