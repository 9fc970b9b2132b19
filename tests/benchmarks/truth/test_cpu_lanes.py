"""Turns are interleaved, and the section says what was measured."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from benchmarks.truth._takt_servers import around
from benchmarks.truth.cpu_lanes import CONTESTANTS, CpuLanes

PROFILE = {
    "knee": 8,
    "planned": {"lockstep": 8, "flowing": 7, "monolithic": 6},
    "device": "two cores",
    "engine": "openvino",
    "precision": "f32",
}


def turn(contestant: str, number: int, robots: int, goodput: float) -> dict[str, Any]:
    return {
        "contestant": contestant,
        "round": number,
        "robots": robots,
        "issued": 64,
        "attainment": 0.98,
        "goodput": goodput,
        "p50": 30.0,
        "p99": 140.0,
        "cores": {"clients": 0.1, "gateway": 0.2, "worker": 1.4},
        "lag_p99": 0.4,
    }


def measured(figures: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Two rounds at one population, by contestant."""
    turns = {
        f"{name} {number}": turn(name, number, 8, goodput)
        for name, goodput in figures.items()
        for number in (1, 2)
    }
    return {"profile": PROFILE, "choice": {"reason": "formation lockstep"}, **turns}


def test_the_populations_are_the_knee_and_one_on_either_side() -> None:
    assert around(8) == (6, 8, 10)
    low, knee, high = around(1)
    assert low < knee < high


def test_nothing_is_known_before_the_profile() -> None:
    part = CpuLanes()

    assert [cell.key for cell in part.cells(False, {})] == ["profile", "choice"]
    assert part.section({}) == ""
    assert part.claims({}) == []


def test_contestants_take_turns_and_another_one_begins_each_round() -> None:
    cells = [cell.settings for cell in CpuLanes().cells(False, {"profile": PROFILE})[2:]]

    assert all(a["contestant"] != b["contestant"] for a, b in pairwise(cells))
    firsts = [cells[place]["contestant"] for place in range(0, 4 * 12, 12)]
    assert sorted(firsts) == sorted(CONTESTANTS)
    assert [cell["is_last"] for cell in cells] == [False] * (len(cells) - 1) + [True]


def test_cells_take_less_than_eleven_minutes_and_have_keys_of_their_own() -> None:
    cells = CpuLanes().cells(False, {"profile": PROFILE})

    assert sum(cell.seconds for cell in cells) < 11 * 60
    assert len({cell.key for cell in cells}) == len(cells)


def test_the_claim_says_the_ratio_its_interval_and_whether_it_holds() -> None:
    found = measured({"auto": 9.0, "lockstep": 10.0, "flowing": 8.0, "monolithic": 7.0})

    (claim,) = CpuLanes().claims(found)

    assert not claim.holds
    assert "measured best was lockstep" in claim.text
    assert "0.900 in the median (95 % interval 0.900 to 0.900, 1 pairs)" in claim.text


def test_the_section_tells_prediction_reason_turns_and_shares() -> None:
    found = measured({"auto": 10.0, "lockstep": 9.9, "flowing": 8.0, "monolithic": 7.0})

    text = CpuLanes().section(found)

    assert "lockstep 8, flowing 7, monolithic 6" in text
    assert "> formation lockstep" in text
    assert "| 8 | Takt's choice | 2 | 10.0 (10.0 to 10.0) | 98.0% | 30 | 140 |" in text
    assert "Takt's choice was the measured best" in text
    assert "| 8 | 0.10 (" in text
