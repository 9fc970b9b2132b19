"""What is measured next on paced devices."""

from typing import Any

import pytest
from benchmarks.truth.paced_cells import FLEETS, cells_of, populations


def keys(found: dict[str, Any]) -> list[str]:
    return [cell.key for cell in cells_of(False, found)]


def test_before_there_is_a_plan_no_population_is_measured() -> None:
    assert not [key for key in keys({}) if key.startswith("measure")]
    assert len(set(keys({}))) == len(keys({}))


def test_every_model_of_a_fleet_is_measured_outside_the_device_on_a_gpu_of_its_own() -> None:
    measured = {key.split()[1].strip(",") for key in keys({}) if key.startswith("outside")}

    for fleet in FLEETS.values():
        assert {*fleet.models} <= measured <= {*FLEETS}


def test_contestants_take_turns() -> None:
    plans = {
        f"plan pi0, stranger 1, {formation}": {"predicted": 20}
        for formation in ("lockstep", "flowing", "monolithic")
    }

    measured = [key for key in keys(plans) if key.startswith("measure")]

    assert [key.rpartition(", ")[2] for key in measured[:6]] == [
        *("lockstep at 20", "flowing at 20", "monolithic at 20"),
        *("lockstep at 21", "flowing at 21", "monolithic at 21"),
    ]


@pytest.mark.parametrize(
    ("attainments", "following"),
    [
        ({}, [20, 21, 19]),
        ({20: 1.0, 21: 0.9}, [20, 21, 19]),
        ({19: 1.0, 20: 0.98, 21: 0.9}, [20, 21, 19]),
        ({19: 1.0, 20: 0.99, 21: 0.98}, [20, 21, 19, 22]),
        ({19: 1.0, 20: 0.97, 21: 0.99}, [20, 21, 19, 22]),
        ({19: 0.97, 20: 0.96, 21: 0.95}, [20, 21, 19, 18]),
        ({18: 0.97, 19: 0.97, 20: 0.96, 21: 0.95}, [20, 21, 19, 18, 17]),
        (dict.fromkeys(range(16, 22), 0.97), [20, 21, 19, 16, 17, 18]),
    ],
)
def test_populations_are_measured_outward_until_the_knee_is_bracketed(
    attainments: dict[int, float], following: list[int]
) -> None:
    assert populations(20, attainments) == following


def test_nobody_asks_for_a_population_of_none() -> None:
    assert populations(1, {}) == [1, 2]
