"""A gateway knows how many robots ask for which model, and how often."""

from itertools import accumulate
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.doubles import Bench, observe

from takt.errors import RefusedError
from takt.gateway.gateway import Gateway
from takt.gateway.robots import RobotsSeen
from takt.units import MILLISECOND, SECOND


def seen() -> RobotsSeen:
    robots = RobotsSeen(0)
    robots.note(1, "pi0", SECOND)
    robots.note(2, "pi0", 2 * SECOND)
    robots.note(2, "pi0", 3 * SECOND)
    robots.note(3, "act", 3 * SECOND)
    return robots


def test_a_robot_counts_once_however_often_it_asks() -> None:
    assert seen().report(10 * SECOND, 4 * SECOND) == {
        "over_ms": 4000.0,
        "models": {"pi0": {"robots": 2, "requests": 3}, "act": {"robots": 1, "requests": 1}},
    }


def test_a_robot_that_is_silent_or_has_left_does_not_count() -> None:
    robots = seen()
    robots.forget(3)

    assert robots.report(SECOND, 4 * SECOND)["models"] == {"pi0": {"robots": 1, "requests": 3}}


def test_a_robot_counts_for_the_model_it_asked_for_last() -> None:
    robots = seen()
    robots.note(1, "act", 4 * SECOND)

    models = robots.report(10 * SECOND, 4 * SECOND)["models"]

    assert models == {"pi0": {"robots": 1, "requests": 3}, "act": {"robots": 2, "requests": 2}}


@given(
    gaps=st.lists(st.integers(1, 400), min_size=1, max_size=60),
    reports=st.lists(st.integers(1, 50), min_size=8, max_size=80),
)
def test_whoever_counts_has_a_request_that_counts(gaps: list[int], reports: list[int]) -> None:
    """However seldom a robot asks, and however often reports are made."""
    lately, robots = 100, RobotsSeen(0)
    asked = [*accumulate(gaps)]
    noted = 0
    for now in accumulate(reports):
        while noted < len(asked) and asked[noted] <= now:
            robots.note(1, "pi0", asked[noted])
            noted += 1
        report = robots.report(lately, now)
        over = round(cast("float", report["over_ms"]) * MILLISECOND)
        counted = cast("dict[str, dict[str, int]]", report["models"]).get("pi0")
        assert min(now, lately) <= over <= 2 * lately + 2 * max(reports)
        if counted is not None:
            within = [at for at in asked[:noted] if now - over < at]
            assert counted == {"robots": 1, "requests": len(within)}
            assert within


def test_a_gateway_counts_robots_that_ask_and_forgets_those_that_leave() -> None:
    async def main(gateway: Gateway) -> None:
        connection = gateway.connect(lambda _: None)
        for robot in ("a", "b", "a"):
            await connection.session(robot).infer("echo", observe(), arrival=0)
        gateway.connect(lambda _: None).session("c")  # connected, and has not asked

        counted = gateway.robots(10 * SECOND)["models"]
        connection.close()

        assert counted == {"echo": {"robots": 2, "requests": 3}}
        assert gateway.robots(10 * SECOND)["models"] == {}

    Bench().run(main)


def test_a_robot_that_has_left_and_asks_again_does_not_count() -> None:
    async def main(gateway: Gateway) -> None:
        connection = gateway.connect(lambda _: None)
        left = connection.session("a")
        connection.close()

        with pytest.raises(RefusedError, match="session 'a' is closed"):
            left.infer("echo", observe(), arrival=0)

        assert gateway.robots(10 * SECOND)["models"] == {}

    Bench().run(main)
