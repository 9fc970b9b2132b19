import pytest
from tests.cli.driving.fakes import answer, behaviour

from takt.cli.driving.outage import (
    Outage,
    ServerGoneError,
    away_sentence,
    check_server,
    server_away_in,
)
from takt.cli.driving.robot import DrivenRobot
from takt.units import Nanos, ms, seconds

SERVED, LOST, REFUSED = "served", "lost", "refused"


def robot(*script: str, name: str = "robot-1", origin: Nanos = 0) -> DrivenRobot:
    """Asks ten times a second, and hears after 5 ms what the script says."""
    end = origin + ms(100 * len(script))
    made = DrivenRobot(name, behaviour(), origin=origin, end=end)
    for number, said in enumerate(script):
        sent = origin + ms(100 * number)
        ask, heard = made.ask(sent), sent + ms(5)
        if said == SERVED:
            made.answered(ask, answer(), heard, is_own=True)
        else:
            code = "closed" if said == LOST else "expired"
            made.failed(ask, code, code, heard, is_lost=said == LOST)
    made.finish(end)
    return made


def figures(*robots: DrivenRobot, start: Nanos = 0, **more: object) -> dict[str, object]:
    away = server_away_in(robots, start=start)
    return {"robots": len(robots), "broken_off": False, "server_away": away, **more}


def test_a_server_that_refuses_is_there() -> None:
    told = figures(robot(SERVED, REFUSED, REFUSED))

    assert told["server_away"] is None
    assert away_sentence(told) is None
    check_server(told)


def test_a_server_that_serves_nobody_any_more_is_gone_for_good() -> None:
    told = figures(
        robot(SERVED, SERVED, LOST, LOST),
        robot(SERVED, LOST, LOST, LOST, name="robot-2", origin=ms(50)),
        robot(SERVED, SERVED, name="robot-3", origin=ms(20)),  # sends nothing any more
    )

    assert told["server_away"] == {
        "robots": 2,
        "from_s": 0.15,
        "back_after_s": None,
        "not_served_again": 2,
        "for_good": True,
    }
    assert away_sentence(told) == (
        "the server went away 0.1 s into the run for 2 of 3 robots and did not come back by the end"
    )
    with pytest.raises(ServerGoneError, match="the server was gone when the run ended"):
        check_server(told)


def test_a_run_that_was_broken_off_is_not_ended_by_the_server_too() -> None:
    told = figures(robot(SERVED, LOST), broken_off=True)

    check_server(told)

    assert (away_sentence(told) or "").endswith("did not come back by the end")


def test_a_server_that_serves_everybody_again_came_back() -> None:
    told = figures(
        robot(SERVED, LOST, LOST, SERVED),
        robot(SERVED, LOST, LOST, LOST, SERVED, name="robot-2", origin=ms(30)),
    )

    assert told["server_away"] == {
        "robots": 2,
        "from_s": 0.1,
        "back_after_s": 0.305,  # from what was sent at 130 ms to the answer at 435 ms
        "not_served_again": 0,
        "for_good": False,
    }
    assert away_sentence(told) == (
        "the server went away 0.1 s into the run for 2 of 2 robots"
        " and came back: all of them were served again, after 0.3 s at most"
    )
    check_server(told)


def test_a_server_that_serves_others_is_there_for_all_but_those_that_lost_it() -> None:
    told = figures(
        robot(SERVED, LOST, LOST, LOST),
        robot(SERVED, LOST, SERVED, SERVED, name="robot-2", origin=ms(30)),
        robot(SERVED, SERVED, SERVED, SERVED, name="robot-3"),
    )

    assert told["server_away"] == {
        "robots": 2,
        "from_s": 0.1,
        "back_after_s": 0.105,
        "not_served_again": 1,
        "for_good": False,
    }
    assert away_sentence(told) == (
        "the server went away 0.1 s into the run for 2 of 3 robots;"
        " it served 1 of them again by the end, after 0.1 s at most"
    )
    check_server(told)


def test_of_a_server_that_went_twice_and_then_for_good_the_end_is_told() -> None:
    told = figures(robot(LOST, SERVED, SERVED, LOST, LOST))

    away = told["server_away"]
    assert away == {
        "robots": 1,
        "from_s": 0.3,
        "back_after_s": None,
        "not_served_again": 1,
        "for_good": True,
    }


def test_a_refusal_does_not_bring_a_server_back() -> None:
    told = figures(robot(SERVED, LOST, REFUSED, REFUSED))

    with pytest.raises(ServerGoneError):
        check_server(told)


def test_a_server_that_was_never_there_is_gone_too() -> None:
    asker = robot(LOST, LOST)

    assert asker.outages == [Outage(since=0)]
    with pytest.raises(ServerGoneError):
        check_server(figures(asker))


@pytest.mark.parametrize(
    ("start", "when"),
    [(0, "0.1 s into epoch 3"), (seconds(2), "in the warm-up of epoch 3")],
)
def test_a_benchmark_says_in_which_epoch(start: Nanos, when: str) -> None:
    away = server_away_in([robot(SERVED, LOST)], start=start)
    assert away is not None

    said = away_sentence({"robots": 1, "server_away": {"epoch": 3, **away}})

    assert said is not None
    assert said.startswith(f"the server went away {when} for 1 of 1 robots")
