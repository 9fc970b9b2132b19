"""What is measured next on paced devices."""

from typing import Any

import pytest
from benchmarks.truth.paced_cells import FLEETS, cells_of, populations

from takt.hardware import model_for


def keys(found: dict[str, Any]) -> list[str]:
    return [cell.key for cell in cells_of(False, found)]


def test_before_there_is_a_plan_no_population_is_measured() -> None:
    assert not [key for key in keys({}) if key.startswith("measure")]
    assert len(set(keys({}))) == len(keys({}))


def test_the_network_of_a_plan_is_that_of_the_robots_with_the_shortest_promise() -> None:
    for fleet in FLEETS.values():
        assert fleet.network_of == min(fleet.models, key=lambda name: model_for(name).slo)


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


def test_where_formations_are_ranked_all_are_measured_at_the_knee_of_the_best() -> None:
    plans = {
        f"plan pi0, stranger 1, {formation}": {"predicted": predicted}
        for formation, predicted in {"lockstep": 30, "flowing": 25, "monolithic": 20}.items()
    }

    measured = [key for key in keys(plans) if key.endswith(" at 30")]

    assert len(measured) == 3


@pytest.mark.parametrize(
    ("holds", "following"),
    [
        ({}, [20, 21, 19]),
        ({20: True, 21: False}, [20, 21, 19]),
        ({19: True, 20: True, 21: False}, [20, 21, 19]),
        ({19: True, 20: True, 21: True}, [20, 21, 19, 22]),
        ({19: False, 20: False, 21: False}, [20, 21, 19, 18]),
        ({18: False, 19: False, 20: False, 21: False}, [20, 21, 19, 18, 17]),
        (dict.fromkeys(range(16, 22), False), [20, 21, 19, 16, 17, 18]),
    ],
)
def test_populations_are_measured_outward_until_the_knee_is_bracketed(
    holds: dict[int, bool], following: list[int]
) -> None:
    assert populations(20, holds) == following


def test_nobody_asks_for_a_population_of_none() -> None:
    assert populations(1, {}) == [1, 2]
