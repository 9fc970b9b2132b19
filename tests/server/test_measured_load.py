"""The robots that were measured take the places of those that were declared."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from tests.server.test_formation_choice import LOAD

from takt.server.measured_load import Asking, asking_of, declared_population, load_for
from takt.server.population import Population
from takt.sim.fleet import RobotGroup

ACT = dataclasses.replace(LOAD.models[0], name="act")
FAST = RobotGroup(model="pi0", name="fast", count=4, device="0", rate_hz=4.0, jitter_ms=100.0)
WAITING = RobotGroup(model="pi0", name="waiting", count=2, device="0", horizon=30)
TWO_GROUPS = dataclasses.replace(LOAD, models=(*LOAD.models, ACT), robots=(FAST, WAITING))


def test_robots_keep_the_proportions_of_their_groups_and_send_as_measured() -> None:
    load = load_for(TWO_GROUPS, Population({"pi0": 9}), {"pi0": 12.5})

    assert load.robots == (
        dataclasses.replace(FAST, count=6, rate_hz=12.5, jitter_ms=80.0),
        dataclasses.replace(WAITING, count=3),
    )


def test_robots_nobody_declared_are_simulated_like_those_of_the_option() -> None:
    load = load_for(TWO_GROUPS, Population({"act": 3}), {})

    largest = len(ACT.holds) - 1
    assert load.robots == (
        RobotGroup(model="act", count=3, device="0", rate_hz=2.0, layout=largest),
    )


def test_without_a_measured_rate_the_declared_one_holds() -> None:
    load = load_for(LOAD, Population({"pi0": 3}), {})

    assert load.robots == (dataclasses.replace(LOAD.robots[0], count=3),)


@given(counts=st.lists(st.integers(0, 50), min_size=1, max_size=4), wanted=st.integers(0, 100))
def test_no_robot_is_lost_to_rounding(counts: list[int], wanted: int) -> None:
    groups = tuple(
        RobotGroup(model="pi0", name=str(place), count=count, device="0", rate_hz=1.0)
        for place, count in enumerate(counts)
    )
    load = load_for(dataclasses.replace(LOAD, robots=groups), Population({"pi0": wanted}), {})

    assert sum(group.count for group in load.robots) == wanted


def test_the_declared_population_adds_up_groups() -> None:
    assert declared_population(TWO_GROUPS.robots) == Population({"pi0": 6})


def test_gateways_are_added_up_and_replicas_share() -> None:
    said = {"over_ms": 500.0, "models": {"pi0": {"robots": 4, "requests": 8}}}
    counted = asking_of(said)["pi0"]

    both = counted / 2 + Asking(1.0, 3.0, 0.5)

    assert counted.rate_hz == 4.0
    assert (both.robots, both.requests, both.rate_hz) == (3.0, 7.0, 14 / 3)
    assert Asking(0.0, 0.0, 0.0).rate_hz == 0.0
