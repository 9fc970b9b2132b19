import io
import json

import pytest
from rich.console import Console
from tests.cli.driving.fakes import answer, robot

from takt.cli.driving.figures import figures_of
from takt.cli.driving.live_table import (
    LOOK_EVERY,
    Onlooker,
    print_figures,
    progress_line,
    robots_table,
    show_figures,
)
from takt.cli.driving.outage import server_away_in
from takt.cli.driving.robot import RobotView
from takt.testing import ManualClock
from takt.units import ms, seconds


def view_of(name: str = "robot-1", **changes: object) -> RobotView:
    chosen: dict[str, object] = {
        "name": name,
        "model": "mini",
        "issued": 20,
        "answered": 19,
        "met": 18,
        "on_time": 19,
        "ticks": 500,
        "starved_ticks": 5,
        "remaining": 8,
        "longest_chunk": 16,
        "latencies": (ms(10), ms(20), ms(30)),
        **changes,
    }
    return RobotView(**chosen)  # type: ignore[arg-type]


def shown(renderable: object, *, width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(renderable)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_row_tells_rate_queue_latencies_and_shares() -> None:
    lines = shown(robots_table([view_of()], seconds(10), most=30))

    assert lines[0] == "1 robots, 10 s"
    assert lines[-1].split() == [
        "robot-1", "mini", "1.9", "████░░░░", "8", "20.0", "30.0", "90.0%", "95.0%", "1.0%",
    ]  # fmt: skip


def test_the_last_row_is_of_all_robots() -> None:
    views = [view_of(), view_of("robot-2", met=0, latencies=(ms(90),))]

    last = shown(robots_table(views, seconds(10), most=30))[-1]

    assert last.split() == ["all", "3.8", "20.0", "90.0", "45.0%", "95.0%", "1.0%"]


def test_a_table_that_does_not_fit_says_how_many_robots_it_leaves_out() -> None:
    views = [view_of(f"robot-{number}") for number in range(64)]

    lines = shown(robots_table(views, seconds(10), most=10))

    assert any(line.startswith("and 55 more") for line in lines)
    assert len([line for line in lines if line.startswith("robot-")]) == 9
    assert lines[-1].startswith("all")


def test_the_table_fits_eighty_columns() -> None:
    views = [view_of("robot-64", latencies=(ms(1234.5),), remaining=500, longest_chunk=500)]

    lines = shown(robots_table(views, seconds(10), most=30))

    assert max(map(len, lines)) <= 80
    assert "1234.5" in lines[-1]


def test_before_anything_happened_there_are_no_figures() -> None:
    nothing = view_of(
        issued=0, answered=0, met=0, on_time=0, ticks=0, starved_ticks=0, latencies=(),
        remaining=0, longest_chunk=0,
    )  # fmt: skip

    last = shown(robots_table([nothing], 0, most=30))[-1]

    assert last.split() == ["robot-1", "mini", "-", "░░░░░░░░", "0", "-", "-", "-", "-", "-"]


def test_a_line_tells_how_things_stand() -> None:
    line = progress_line([view_of(), view_of()], seconds(5))

    assert line == (
        "   5 s: 2 robots, 38 of 40 requests answered, 90.0% within the slo, 1.0% of ticks starved"
    )


def test_a_log_gets_a_line_every_five_seconds() -> None:
    clock, out = ManualClock(), io.StringIO()
    onlooker = Onlooker(
        Console(file=out, width=40), [robot()], start=0, end=seconds(20), clock=clock.now
    )
    with onlooker.open():
        for _ in range(12):
            clock.advance(seconds(1))
            onlooker.look()

    assert [line[:8] for line in out.getvalue().splitlines()] == ["   5 s: ", "  10 s: "]


def test_a_terminal_gets_a_table_at_every_look() -> None:
    clock, out = ManualClock(), io.StringIO()
    console = Console(file=out, width=80, height=25, force_terminal=True, color_system=None)
    onlooker = Onlooker(console, [robot()], start=0, end=seconds(20), clock=clock.now)
    with onlooker.open():
        clock.advance(LOOK_EVERY)
        onlooker.look()

    assert "queue" in out.getvalue()


def test_the_summary_begins_with_what_was_served() -> None:
    asker = robot(end=ms(100))
    asker.answered(asker.ask(0), answer(), ms(5), is_own=None)
    asker.finish(ms(100))
    out = io.StringIO()

    figures = figures_of([asker], duration=ms(100), seed=0)
    show_figures(figures, Console(file=out, width=60))

    lines = out.getvalue().splitlines()
    assert lines[0] == "served 1 of 1 requests within 50 ms (100.00%), as the robots measured it"
    assert any(line.split() == ["network", "2.0", "2.0", "2.0", "2.0"] for line in lines)


def test_everything_that_is_shown_of_paced_robots_says_so() -> None:
    view = view_of(is_paced=True)

    assert shown(robots_table([view], seconds(10), most=30))[0] == "1 robots, 10 s, paced"
    assert progress_line([view], seconds(5)).startswith("   5 s, paced: 1 robots")


def test_robots_without_a_server_are_told_meanwhile() -> None:
    views = [view_of(is_away=True), view_of(), view_of(is_away=True)]

    assert shown(robots_table(views, seconds(10), most=30))[0] == (
        "3 robots, 10 s, 2 without a server"
    )
    assert progress_line(views, seconds(5)).endswith("of ticks starved, 2 without a server")


@pytest.mark.parametrize("as_json", [True, False])
def test_that_the_server_went_away_is_said_once_beside_the_figures(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    asker = robot(end=ms(100))
    asker.failed(asker.ask(0), "closed", "closed", ms(5), is_lost=True)
    asker.finish(ms(100))
    out = io.StringIO()
    away = server_away_in([asker], start=0)
    figures = figures_of([asker], duration=ms(100), seed=0, server_away=away)

    print_figures(figures, Console(file=out, width=60), as_json=as_json, show=show_figures)

    said = "the server went away 0.0 s into the run for 1 of 1 robots"
    assert out.getvalue().count(said) == 1
    printed = json.dumps(figures, indent=2) + "\n" if as_json else ""
    assert capsys.readouterr().out == printed
