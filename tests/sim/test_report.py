"""The report says what happened, with nothing rounded into a better light."""

import json
from typing import Any, cast

import pytest
from tests.sim.fleets import fleet_of, group_of, model_of, setup_of

from takt.core.attainment import OUTCOMES, STAGES
from takt.sim.fleet import Fleet
from takt.sim.knee import Draw, Knee, Measured
from takt.sim.loop import simulate
from takt.sim.report import curve_report, report
from takt.units import SECOND

Figures = dict[str, Any]

SERVED = {"issued", "attainment", "on_time_share", "outcomes", "latency_ms", "stages_ms"}
QUANTILES = {"p50", "p90", "p99", "max"}


def report_of(fleet: Fleet) -> Figures:
    return cast("Figures", report(simulate(fleet, warm_up=SECOND, duration=4 * SECOND, seed=3)))


@pytest.fixture(scope="module")
def crowd() -> Figures:
    """Twice as many robots as the device can serve, in two groups of one model."""
    arms, rovers = group_of(25, name="arms"), group_of(25, name="rovers", control_hz=50)
    return report_of(fleet_of(arms, rovers, setup=setup_of(model_of(slo_ms=100))))


def test_the_keys_are_those_the_module_documents(crowd: Figures) -> None:
    assert set(crowd) == SERVED | {
        "simulated",
        "seconds",
        "warm_up_seconds",
        "seed",
        "robots",
        "network_allowance_ms",
        "worst_robot",
        "starvation",
        "models",
        "groups",
        "devices",
    }
    assert set(crowd["worst_robot"]) == SERVED | {"robot"}
    assert set(crowd["starvation"]) == {"starved_ticks", "ticks", "share"}
    assert set(crowd["models"]["pi0"]) == SERVED | {"slo_ms"}
    assert set(crowd["groups"]["arms"]) == SERVED | {"model", "device", "robots", "starvation"}
    assert set(crowd["devices"]["gpu"]) == {
        "formation",
        "discipline",
        "utilisation",
        "launches",
        "mean_rows",
    }
    assert set(crowd["outcomes"]) == set(OUTCOMES)
    assert set(crowd["latency_ms"]) == QUANTILES
    assert set(crowd["stages_ms"]) == set(STAGES)
    assert set(crowd["stages_ms"]["queue"]) == QUANTILES


def test_a_report_is_json_and_comes_back_as_it_was(crowd: Figures) -> None:
    assert json.loads(json.dumps(crowd, allow_nan=False)) == crowd


def test_the_circumstances_are_part_of_the_report(crowd: Figures) -> None:
    assert (crowd["simulated"], crowd["seconds"], crowd["warm_up_seconds"]) == (True, 4.0, 1.0)
    assert (crowd["seed"], crowd["robots"], crowd["network_allowance_ms"]) == (3, 50, 5.0)
    assert crowd["models"]["pi0"]["slo_ms"] == 100.0


def test_attainment_counts_refusals_as_misses(crowd: Figures) -> None:
    served, expired = crowd["outcomes"]["served"], crowd["outcomes"]["expired"]

    assert crowd["issued"] == served + expired == 50 * 4 * 2
    assert expired > 50
    assert crowd["attainment"] <= served / crowd["issued"] < 1


def test_groups_of_one_model_are_told_apart_and_add_up(crowd: Figures) -> None:
    arms, rovers = crowd["groups"]["arms"], crowd["groups"]["rovers"]

    assert (arms["model"], arms["device"], arms["robots"]) == ("pi0", "gpu", 25)
    assert arms["issued"] + rovers["issued"] == crowd["models"]["pi0"]["issued"]
    assert arms["starvation"]["ticks"] == 25 * 4 * 30
    assert rovers["starvation"]["ticks"] == 25 * 4 * 50
    assert crowd["starvation"]["ticks"] == 25 * 4 * (30 + 50)
    total = arms["starvation"]["starved_ticks"] + rovers["starvation"]["starved_ticks"]
    assert crowd["starvation"]["starved_ticks"] == total > 0


def test_the_worst_robot_is_named_by_its_group(crowd: Figures) -> None:
    worst = crowd["worst_robot"]

    assert worst["robot"].rpartition("-")[0] in ("arms", "rovers")
    assert worst["attainment"] <= crowd["attainment"]
    assert worst["issued"] == 8


def test_a_busy_device_shows_it(crowd: Figures) -> None:
    device = crowd["devices"]["gpu"]

    assert (device["formation"], device["discipline"]) == ("lockstep", "earliest_deadline")
    assert all(0.7 < share <= 1 for share in device["utilisation"].values())
    assert device["mean_rows"]["prefix"] > 1.5
    assert device["launches"]["denoise"] > 50


def test_a_fleet_that_sends_nothing_is_neither_good_nor_bad() -> None:
    figures = report_of(fleet_of())

    assert (figures["robots"], figures["issued"]) == (0, 0)
    assert figures["attainment"] is None
    assert figures["on_time_share"] is None
    assert figures["latency_ms"] is None
    assert figures["worst_robot"] is None
    assert figures["starvation"] == {"starved_ticks": 0, "ticks": 0, "share": None}
    assert figures["devices"]["gpu"]["utilisation"] == {"prefix": 0.0, "denoise": 0.0}
    assert figures["devices"]["gpu"]["mean_rows"] == {"prefix": None, "denoise": None}


def test_a_group_without_robots_is_listed_with_nothing_issued() -> None:
    figures = report_of(fleet_of(group_of(2), group_of(0, name="none")))

    assert figures["groups"]["none"]["issued"] == 0
    assert figures["groups"]["none"]["attainment"] is None
    assert figures["groups"]["none"]["starvation"]["share"] is None


def test_a_curve_is_reported_point_by_point_with_the_bound_that_judges_it() -> None:
    draws = tuple(Draw(attainment, 0.9, {}) for attainment in (0.98, 0.99, 1.0))

    figures = curve_report(Knee(target=0.9, measured=(Measured(population=8, draws=draws),)))

    assert figures == {
        "target": 0.9,
        "knee_robots": 8,
        "points": [
            {
                "robots": 8,
                "attainment": 0.99,
                # Student's t with two degrees of freedom: 4.303 and 2.920, times 0.01 / sqrt(3).
                "interval_low": 0.96516,
                "interval_high": 1.01484,
                "bound": 0.97314,
                "draws": 3,
            }
        ],
    }
