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


def cell(*, holds: bool, attainment: float = 0.99) -> dict[str, Any]:
    return {
        "holds": holds,
        "attainment": attainment,
        "issued": 100,
        "client_cores": 0.1,
        "cpu": {"gateway": 0.2, "worker": 0.05},
        "is_client_the_limit": False,
    }


def found(knees: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """Plans and populations around the measured knee, by formation."""
    cells: dict[str, Any] = {
        "profile smolvla, stranger 1": {"device_s": 53.0},
        "outside smolvla": {"up_ms": 2.04, "down_ms": 0.46, "handover_ms": 0.3, "spread": 0.031},
    }
    for formation, (predicted, knee) in knees.items():
        cells[f"plan smolvla, stranger 1, {formation}"] = planned(predicted, formation)
        for robots in (knee, knee + 1):
            key = f"measure smolvla, stranger 1, {formation} at {robots}"
            cells[key] = cell(holds=robots <= knee)
    return cells


@pytest.mark.parametrize(
    ("holds", "knee"),
    [
        ({}, Knee(None, False)),
        ({7: False}, Knee(None, False)),
        ({7: True}, Knee(7, False)),
        ({7: True, 8: False}, Knee(7, True)),
        ({7: True, 8: False, 9: True}, Knee(7, True)),
        ({7: True, 9: False}, Knee(7, False)),
    ],
)
def test_the_knee_is_the_last_before_the_first_that_does_not_hold(
    holds: dict[int, bool], knee: Knee
) -> None:
    assert knee_of(holds) == knee


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
    assert "98.5%, 99.0%" in section
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


def test_a_population_holds_when_the_mean_reaches_the_target() -> None:
    assert measured_of(told(), 0.98)["holds"]
    assert not measured_of(told(), 0.99)["holds"]


@pytest.mark.parametrize("change", [{"foreign_chunks": 1}, {"paced": False}])
def test_a_server_that_mixes_up_robots_or_computes_is_no_result(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="mixed up robots"):
        measured_of(told(**change), 0.98)
