import json
from dataclasses import replace
from typing import Any

import pytest
from tests.cli.driving.fakes import answer, behaviour

from takt.cli.driving.figures import DriveFailedError, check_run, figures_of, sentences
from takt.cli.driving.outage import ServerGoneError, server_away_in
from takt.cli.driving.robot import DrivenRobot
from takt.errors import InvariantError
from takt.units import ms, seconds


def two_robots() -> list[DrivenRobot]:
    """One is answered in 5 ms and then in 80 ms, which breaks the slo; one hears of an error."""
    quick = DrivenRobot("robot-1", behaviour(), origin=0, end=ms(200))
    quick.answered(quick.ask(0), answer(), ms(5), is_own=True)
    quick.answered(quick.ask(ms(100)), answer(), ms(180), is_own=True)
    refused = DrivenRobot("robot-2", behaviour(), origin=0, end=ms(200))
    refused.failed(refused.ask(0), "expired", "expired", ms(60))
    refused.failed(refused.ask(ms(100)), "closed", "closed", ms(101))
    for robot in (quick, refused):
        robot.finish(ms(200))
    return [quick, refused]


def test_every_issued_request_is_in_the_denominator() -> None:
    figures = figures_of(two_robots(), duration=ms(200), seed=3)

    assert figures["issued"] == 4
    assert figures["attainment"] == 0.25
    assert figures["outcomes"]["served"] == 2
    assert figures["errors"] == {"closed": 1, "expired": 1}
    assert figures["worst_robot"]["robot"] == "robot-2"
    assert figures["models"]["echo"]["slo_ms"] == 50.0
    assert figures["starvation"] == {"starved_ticks": 21, "ticks": 40, "share": 0.525}
    assert figures["stages_ms"]["network"]["p50"] == 2.0
    assert figures["simulated"] is False


def test_the_figures_are_json() -> None:
    figures = figures_of(two_robots(), duration=ms(200), seed=3)

    assert json.loads(json.dumps(figures)) == figures


def bytes_of(sent: int, raw: int) -> dict[str, Any]:
    """The figures of a robot whose two observations were answered, of these bytes in all."""
    robot = DrivenRobot("robot-1", behaviour(), origin=0, end=ms(200))
    for began in (0, ms(100)):
        came = replace(answer(), sent_bytes=sent // 2, raw_bytes=raw // 2)
        robot.answered(robot.ask(began), came, began + ms(5), is_own=True)
    robot.finish(ms(200))
    return figures_of([robot], duration=ms(200), seed=0)


def test_bytes_are_told_per_observation_and_beside_what_the_images_had() -> None:
    figures = bytes_of(10_000, 70_000)

    assert figures["observation_bytes"] == {"sent": 5000, "raw": 35_000}
    assert (
        "observations: 5.0 kB each, 7.0 times less than their images as arrays (35.0 kB)"
        in sentences(figures)
    )
    assert "observations: 5.0 kB each" in sentences(bytes_of(10_000, 10_000))


def test_bytes_that_nobody_counted_are_not_told() -> None:
    figures = figures_of(two_robots(), duration=ms(200), seed=3)

    assert figures["observation_bytes"] is None
    assert not any("kB" in sentence for sentence in sentences(figures))


def test_the_first_sentence_says_how_many_of_all_were_served_in_time() -> None:
    first, *rest = sentences(figures_of(two_robots(), duration=seconds(0.2), seed=3))

    assert first == "served 1 of 4 requests within 50 ms (25.00%), as the robots measured it"
    assert "requests without an answer: 1 closed, 1 expired" in rest
    assert "chunks checked against the observation they answer: 2, foreign: 0" in rest


def test_a_run_that_was_broken_off_says_so() -> None:
    figures = figures_of(two_robots(), duration=seconds(0.2), seed=3, broken_off=True)

    assert sentences(figures)[-1] == "the run was broken off after 0.2 s"


def test_a_run_without_a_request_has_figures() -> None:
    idle = DrivenRobot("robot-1", behaviour(), origin=ms(10), end=ms(10))
    figures = figures_of([idle], duration=0, seed=0)

    assert figures["attainment"] is None
    assert sentences(figures)[0].startswith("served 0 of 0 requests within 50 ms (-)")
    with pytest.raises(DriveFailedError, match="no robot sent anything"):
        check_run(figures)


def test_a_run_that_was_broken_off_before_anything_was_served_is_no_failure() -> None:
    idle = DrivenRobot("robot-1", behaviour(), origin=ms(10), end=ms(10))

    check_run(figures_of([idle], duration=0, seed=0, broken_off=True))


def test_robots_of_models_with_different_promises_are_counted_apart() -> None:
    robots = two_robots()
    other = DrivenRobot("robot-3", behaviour(model="mini", slo=ms(90)), origin=0, end=ms(100))
    other.answered(other.ask(0), answer(), ms(80), is_own=None)
    other.finish(ms(100))

    figures = figures_of([*robots, other], duration=ms(200), seed=0)

    assert figures["models"]["mini"]["attainment"] == 1.0
    assert "within their model's slo" in sentences(figures)[0]


def test_a_run_that_served_somebody_passes() -> None:
    check_run(figures_of(two_robots(), duration=ms(200), seed=0))


def test_a_run_that_served_nobody_fails_and_says_why() -> None:
    figures = figures_of(two_robots()[1:], duration=ms(200), seed=0)

    with pytest.raises(DriveFailedError, match="nothing was served: 1 closed, 1 expired"):
        check_run(figures)


def test_a_single_foreign_chunk_fails_the_run() -> None:
    robots = two_robots()
    victim = DrivenRobot("robot-3", behaviour(), origin=0, end=ms(100))
    victim.answered(victim.ask(0), answer(), ms(5), is_own=False)
    victim.finish(ms(100))

    with pytest.raises(InvariantError, match="1 chunks belonged to another observation"):
        check_run(figures_of([*robots, victim], duration=ms(200), seed=0))


def test_a_paced_run_says_so_first_and_what_it_means() -> None:
    paced = DrivenRobot("robot-1", behaviour(is_paced=True), origin=0, end=ms(200))
    paced.answered(paced.ask(0), answer(), ms(5), is_own=True)
    paced.finish(ms(200))
    figures = figures_of([paced], duration=ms(200), seed=0)

    assert figures["paced"] is True
    assert figures_of(two_robots(), duration=ms(200), seed=0)["paced"] is False
    assert sentences(figures)[0].startswith("paced: served 1 of")
    assert any("computed nothing" in line for line in sentences(figures))


def test_a_run_whose_server_went_away_for_good_fails_although_some_were_served() -> None:
    robot = DrivenRobot("robot-1", behaviour(), origin=0, end=ms(200))
    robot.answered(robot.ask(0), answer(), ms(5), is_own=True)
    robot.failed(robot.ask(ms(100)), "closed", "closed", ms(101), is_lost=True)
    robot.finish(ms(200))
    away = server_away_in([robot], start=0)

    figures = figures_of([robot], duration=ms(200), seed=0, server_away=away)

    assert (figures["issued"], figures["attainment"]) == (2, 0.5)
    assert sentences(figures)[1].startswith("the server went away 0.1 s into the run for 1 of 1")
    with pytest.raises(ServerGoneError):
        check_run(figures)
