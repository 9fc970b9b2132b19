"""A fleet is checked before it is simulated, and grows without taking a robot away."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sim.fleets import CONSTANT, fleet_of, group_of, model_of, setup_of

from takt.errors import ConfigError
from takt.sim.fleet import Fleet, RobotGroup
from takt.units import ms, seconds


@pytest.mark.parametrize(
    "how",
    [
        {"count": -1},
        {"count": 100_001},
        {"horizon": 0},
        {"horizon": 100_001},
        {"rate_hz": 0.0},
        {"rate_hz": float("nan")},
        {"rate_hz": float("inf")},
        {"control_hz": -30.0},
        {"control_hz": 1e9},
        {"jitter_ms": -1.0},
        {"jitter_ms": float("nan")},
        {"deadline": "soon"},
        {"threshold": 1.5},
        {"num_cameras": -1},
        {"encoding": "png"},
    ],
)
def test_an_impossible_robot_is_refused_by_the_name_of_what_is_wrong(how: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(how))):
        group_of(**how)


def test_jitter_beyond_a_period_is_refused_as_observations_would_overtake_each_other() -> None:
    group_of(rate_hz=10, jitter_ms=100)

    with pytest.raises(ConfigError, match="jitter_ms must lie in 0 to one period, got 101"):
        group_of(rate_hz=10, jitter_ms=101)


def test_a_group_is_called_like_its_model_unless_it_has_a_name() -> None:
    assert group_of().name == "pi0"
    assert group_of(name="arms").name == "arms"


def test_a_tick_is_the_time_between_two_actions() -> None:
    assert group_of(control_hz=50).tick == ms(20)
    assert group_of(control_hz=30).tick == seconds(1 / 30)


def test_the_size_of_an_observation_follows_its_cameras() -> None:
    one, two = group_of(num_cameras=1), group_of(num_cameras=2)

    assert two.observation_bytes - one.observation_bytes == 224 * 224 * 3


def test_a_group_on_a_device_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match=r"robots 'pi0': no device 'tpu'; known: gpu"):
        fleet_of(group_of(device="tpu"))


def test_a_group_whose_device_does_not_serve_its_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'gpu' does not serve 'act'; it serves: pi0"):
        fleet_of(group_of(model="act"))


def test_two_groups_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two groups of robots are called 'pi0'"):
        fleet_of(group_of(), group_of())


def test_population_counts_the_robots_of_all_groups() -> None:
    assert fleet_of(group_of(3), group_of(4, name="more")).population == 7
    assert Fleet(devices={}, robots=(), network=CONSTANT).population == 0


def test_a_fleet_keeps_its_proportions_when_it_is_resized() -> None:
    fleet = fleet_of(group_of(8), group_of(4, name="more"))

    assert counts(fleet.resized(12)) == [8, 4]
    assert counts(fleet.resized(24)) == [16, 8]
    assert counts(fleet.resized(3)) == [2, 1]
    assert counts(fleet.resized(1)) == [1, 0]


def test_an_empty_fleet_cannot_be_resized() -> None:
    with pytest.raises(ConfigError, match=re.escape("without robots has no proportions")):
        fleet_of(group_of(0)).resized(3)


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any),
    population=st.integers(0, 60),
)
def test_a_larger_fleet_has_every_robot_of_a_smaller_one(sizes: list[int], population: int) -> None:
    fleet = fleet_of(*(group_of(size, name=f"g{n}") for n, size in enumerate(sizes)))

    smaller, larger = fleet.resized(population), fleet.resized(population + 1)

    assert smaller.population == population
    assert larger.population == population + 1
    grown = zip(counts(smaller), counts(larger), strict=True)
    assert all(before <= after for before, after in grown)


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any))
def test_a_fleet_of_its_own_size_is_the_same_fleet(sizes: list[int]) -> None:
    fleet = fleet_of(*(group_of(size, name=f"g{n}") for n, size in enumerate(sizes)))

    assert fleet.resized(fleet.population) == fleet


def test_the_model_of_a_group_is_found_on_its_own_device() -> None:
    slow, fast = model_of(slo_ms=500), model_of(slo_ms=50)
    fleet = Fleet(
        devices={"a": setup_of(slow), "b": setup_of(fast)},
        robots=(
            RobotGroup(model="pi0", count=1, device="a", name="slow"),
            RobotGroup(model="pi0", count=1, device="b", name="fast"),
        ),
        network=CONSTANT,
    )

    assert [fleet.model(group).slo for group in fleet.robots] == [ms(500), ms(50)]


def counts(fleet: Fleet) -> list[int]:
    return [group.count for group in fleet.robots]


@pytest.mark.parametrize(
    ("name", "spread", "said"),
    [
        ("gpu", -0.1, "expected 0 up to 1, got -0.1"),
        ("gpu", 1.0, "expected 0 up to 1, got 1.0"),
        ("tpu", 0.1, "no such device; known: gpu"),
    ],
)
def test_a_spread_that_no_device_has_is_refused(name: str, spread: float, said: str) -> None:
    with pytest.raises(ConfigError, match=f"spread of '{name}': {said}"):
        replace(fleet_of(group_of()), spreads={name: spread})
