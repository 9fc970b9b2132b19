"""A person reads the report in a terminal of 80 columns."""

from typing import Any

from rich.console import Console
from tests.sim.fleets import fleet_of, group_of, model_of, setup_of

from takt.cli.report_table import show_report
from takt.sim.fleet import Fleet
from takt.sim.loop import simulate
from takt.sim.report import report
from takt.units import SECOND


def shown(fleet: Fleet, **more: Any) -> list[str]:  # noqa: ANN401 - further parts of the report
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        show_report(report(simulate(fleet, duration=2 * SECOND)) | more, console)
    return capture.get().splitlines()


def row(lines: list[str], name: str) -> list[str]:
    """Cells of the row that begins with ``name``."""
    return next(line.split() for line in lines if line.split()[:1] == [name])


def test_each_group_has_a_row_of_its_own() -> None:
    lines = shown(fleet_of(group_of(3, name="arms"), group_of(2, name="rovers")))

    assert row(lines, "arms")[:4] == ["arms", "3", "12", "100.00%"]
    assert row(lines, "rovers")[:4] == ["rovers", "2", "8", "100.00%"]
    assert row(lines, "all")[:4] == ["all", "5", "20", "100.00%"]


def test_one_group_is_not_added_up_with_itself() -> None:
    lines = shown(fleet_of(group_of(3)))

    assert not any(line.split()[:1] == ["all"] for line in lines)


def test_names_of_any_length_and_kind_fit() -> None:
    name = "lerobot/pi0_[red]_" + "very_" * 12 + "long"
    lines = shown(fleet_of(group_of(3, name=name)))

    assert all(len(line) <= 80 for line in lines)
    assert "[red]" in "".join(lines)
    assert any("attainment" in line for line in lines)


def test_requests_without_an_answer_are_counted_by_outcome() -> None:
    calm = shown(fleet_of(group_of(1)))
    crowded = shown(fleet_of(group_of(60), setup=setup_of(model_of(slo_ms=100))))

    assert "without an answer: none" in calm
    assert any("without an answer: " in line and "expired" in line for line in crowded)


def test_nothing_sent_shows_a_dash_and_no_share() -> None:
    lines = shown(fleet_of(group_of(0)))

    assert row(lines, "pi0") == ["pi0", "0", "0", "-", "-", "-", "-", "-"]
    assert "starvation: - of control ticks found no action (0 of 0)" in lines
    assert row(lines, "gpu") == ["gpu", "lockstep", "prefix", "0.0%", "0", "-"]


def test_the_knee_is_told_where_a_curve_was_drawn() -> None:
    fleet = fleet_of(group_of(1))

    found = shown(fleet, curve={"target": 0.98, "knee_robots": 22})
    none = shown(fleet, curve={"target": 0.98, "knee_robots": None})

    assert found[-1] == "knee: up to 22 robots hold 0.98 attainment (simulated)"
    assert none[-1] == "knee: no population holds 0.98 attainment (simulated)"
