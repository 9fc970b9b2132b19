"""What is read from recorded cells of the paced part."""

from collections.abc import Mapping
from typing import Any

import pytest
from benchmarks.truth.paced_section import (
    Knee,
    claims_of,
    knee_of,
    measured_of,
    rows_of,
    section_of,
)


def planned(predicted: int, formation: str = "lockstep") -> dict[str, Any]:
    return {
        "gpu": "a6000",
        "formation": formation,
        "options": {"gathering": 4},
        "prefix_sizes": {"smolvla": [1, 2]},
        "denoise_sizes": {"smolvla": [1, 2, 4]},
        "predicted": predicted,
        "attainment": [{"robots": predicted, "attainment": 0.985}],
    }


def cell(*, attainment: float) -> dict[str, Any]:
    return {
        "attainment": attainment,
        "issued": 100,
        "client_cores": 0.1,
        "cpu": {"gateway": 0.2, "worker": 0.05},
        "is_client_the_limit": False,
    }


def outside(up_ms: float) -> dict[str, float]:
    return {
        "up_ms": up_ms,
        "down_ms": 0.46,
        "allowance_ms": 1.5,
        "handover_ms": 0.3,
        "spread": 0.031,
        "p99_up_and_down_ms": 9.0,
    }


def found(knees: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """Plans and populations around the measured knee, by formation."""
    cells: dict[str, Any] = {
        "profile smolvla, stranger 1": {"device_s": 53.0},
        "outside smolvla, round 1": outside(2.04),
        "outside smolvla, round 2": outside(9.0),
        "outside smolvla, round 3": outside(2.0),
    }
    for formation, (predicted, knee) in knees.items():
        cells[f"plan smolvla, stranger 1, {formation}"] = planned(predicted, formation)
        for robots in (knee, knee + 1):
            key = f"measure smolvla, stranger 1, {formation} at {robots}"
            cells[key] = cell(attainment=0.99 if robots <= knee else 0.97)
    return cells


@pytest.mark.parametrize(
    ("attainments", "knee"),
    [
        ({}, Knee(None, False)),
        ({7: 0.97}, Knee(None, False)),
        ({7: 0.98}, Knee(7, False)),
        ({7: 0.99, 8: 0.97}, Knee(7, True)),
        ({8: 0.97, 7: 0.99}, Knee(7, True)),
    ],
)
def test_the_knee_is_the_largest_population_that_reaches_the_target(
    attainments: dict[int, float], knee: Knee
) -> None:
    assert knee_of(attainments) == knee


@pytest.mark.parametrize(
    ("attainments", "knee"),
    [
        ({7: 0.99, 8: 0.975, 9: 0.99, 10: 0.95}, Knee(9, True)),
        ({7: 0.99, 8: 0.96, 9: 0.99, 10: 0.95}, Knee(7, True)),
        ({7: 0.97, 8: 0.981, 9: 0.96}, Knee(None, False)),
        ({7: 0.99, 8: 0.97, 9: 0.995}, Knee(9, False)),
    ],
)
def test_populations_that_seem_to_be_served_better_than_smaller_ones_are_averaged_with_them(
    attainments: dict[int, float], knee: Knee
) -> None:
    assert knee_of(attainments) == knee


def test_a_measured_knee_is_set_beside_the_predicted_one() -> None:
    (row,) = rows_of(found({"lockstep": (24, 23)}))

    assert (row.fleet, row.seed, row.asked, row.difference) == ("smolvla", 1, "lockstep", -1)


def test_a_knee_one_robot_off_bears_the_claim_out_and_two_do_not() -> None:
    near, _ = claims_of(found({"lockstep": (24, 23)}))
    far, _ = claims_of(found({"lockstep": (24, 22)}))

    assert near.holds
    assert not far.holds
    assert "not so: SmolVLA, stranger 1, lockstep -2" in far.text


def test_a_knee_that_was_not_bracketed_bears_nothing_out() -> None:
    cells = found({"lockstep": (24, 24)})
    del cells["measure smolvla, stranger 1, lockstep at 25"]

    assert not claims_of(cells)[0].holds
    assert "at least 24" in section_of(cells)


def test_formations_that_change_places_do_not_rank_as_simulated() -> None:
    same = claims_of(found({"lockstep": (24, 24), "monolithic": (18, 19)}))[1]
    level = claims_of(found({"lockstep": (24, 23), "monolithic": (23, 23)}))[1]
    swapped = claims_of(found({"lockstep": (24, 23), "monolithic": (23, 24)}))[1]

    assert (same.holds, level.holds, swapped.holds) == (True, True, False)
    assert "swapped: lockstep and monolithic" in swapped.text


def test_four_models_must_be_profiled_in_five_minutes() -> None:
    cells = {"profile of cores": {"seconds": 301.0, "models": ["mini", "echo", "pi0", "smolvla"]}}

    (claim,) = claims_of(cells)

    assert not claim.holds
    assert "301 s" in claim.text


def test_the_section_says_what_is_simulated_and_what_is_paced() -> None:
    section = section_of(found({"lockstep": (24, 23)}))

    assert section.startswith("## Paced devices")
    assert "predicted (simulated) | measured (paced)" in section
    assert (
        "| SmolVLA | a6000 | 1 | lockstep, gathering 4, batches to 2 and 4 | 24 | 23 | -1 |"
        in section
    )
    assert "98.5%, 97.0%" in section
    assert "SmolVLA 2.0, 0.5 and 0.30 ms, launches spread by 3.1%" in section
    assert "client 0.10 (most 0.10), gateway 0.20" in section
    assert "smolvla, stranger 1 53 s" in section


def test_nothing_is_said_of_nothing() -> None:
    assert section_of({}) == ""
    assert claims_of({}) == []


def told(**changes: object) -> dict[str, Any]:
    """Figures of ``takt bench``."""
    return {
        "foreign_chunks": 0,
        "paced": True,
        "mean": 0.985,
        "epochs": [{"attainment": 0.97}, {"attainment": 1.0}],
        "worst_robot": {"robot": "robot-1", "attainment": 0.9},
        "issued": 200,
        "latency_ms": {"p50": 50.0, "p90": 70.0, "p99": 90.0},
        "split_ms": {"sender": {"p50": 0.5}},
        "senders": {
            "cpu_share": 0.1,
            "busiest": 0.1,
            "lag_ms": {"p99": 0.4},
            "is_bottleneck": False,
        },
        "cpu": {"gateway": 0.1},
        **changes,
    }


def test_the_attainment_of_a_population_is_the_mean_over_the_draws() -> None:
    assert measured_of(told())["attainment"] == told()["mean"]


@pytest.mark.parametrize("change", [{"foreign_chunks": 1}, {"paced": False}])
def test_a_server_that_mixes_up_robots_or_computes_is_no_result(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="mixed up robots"):
        measured_of(told(**change))
