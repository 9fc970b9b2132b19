"""The knee of a curve is found, whatever the curve looks like and wherever the search begins."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sim.fleets import fleet_of, group_of, model_of, setup_of

from takt.errors import ConfigError
from takt.sim.capacity import MOST_SEARCHED, Curve, Measured, Sweep, attainment_curve, search_curve
from takt.sim.plot import CurvePoint
from takt.units import SECOND

QUICK = Sweep(duration=2 * SECOND, warm_up=0, seeds=(0, 1))


def synthetic(attainment: Callable[[int], float], margin: float = 0.0) -> Callable[[int], Measured]:
    """A fleet whose attainment is a formula; each population may be asked for once."""
    asked: set[int] = set()

    def measure(population: int) -> Measured:
        assert 1 <= population <= MOST_SEARCHED
        assert population not in asked
        asked.add(population)
        mean = attainment(population)
        point = CurvePoint(population=population, mean=mean, low=mean, high=mean)
        return Measured(point, mean - margin)

    return measure


def falls_after(knee: int) -> Callable[[int], float]:
    return lambda population: 1.0 if population <= knee else max(0.0, 0.97 - 0.001 * population)


def populations(curve: Curve) -> list[int]:
    return [point.population for point in curve.points]


@given(knee=st.integers(1, MOST_SEARCHED), start=st.integers(0, 2 * MOST_SEARCHED))
def test_the_knee_is_found_from_any_start(knee: int, start: int) -> None:
    curve = search_curve(synthetic(falls_after(knee)), start=start, target=0.98)

    assert curve.knee == knee


@given(knee=st.integers(1, 1_000), start=st.integers(1, 1_000))
def test_the_curve_holds_the_knee_its_successor_and_points_on_both_sides(
    knee: int, start: int
) -> None:
    curve = search_curve(synthetic(falls_after(knee)), start=start, target=0.98)

    shown = populations(curve)
    assert shown == sorted(shown)
    assert {knee, knee + 1} <= set(shown)
    assert max(shown) <= max(2 * knee, 10)
    assert len(curve.bounds) == len(shown)


def test_a_fleet_that_never_holds_has_no_knee() -> None:
    curve = search_curve(synthetic(lambda _: 0.5), start=40, target=0.98)

    assert curve.knee is None
    assert populations(curve)[0] == 1


def test_a_fleet_that_always_holds_ends_at_the_largest_population_tried() -> None:
    curve = search_curve(synthetic(lambda _: 1.0), start=3, target=0.98)

    assert curve.knee == MOST_SEARCHED


def test_the_bound_decides_and_not_the_mean() -> None:
    def line(population: int) -> float:
        return max(0.0, 1 - 0.001 * population)

    by_mean = search_curve(synthetic(line), start=8, target=0.9795)
    by_bound = search_curve(synthetic(line, margin=0.005), start=8, target=0.9795)

    assert (by_mean.knee, by_bound.knee) == (20, 15)


def test_a_population_beyond_a_failure_does_not_count() -> None:
    dip = {12: 0.5}
    curve = search_curve(
        synthetic(lambda n: dip.get(n, 1.0) if n <= 24 else 0.1), start=12, target=0.98
    )

    assert curve.knee == 11


@pytest.mark.slow
def test_a_simulated_fleet_is_served_up_to_its_knee() -> None:
    fleet = fleet_of(group_of(10, rate_hz=5), setup=setup_of(model_of(slo_ms=120)))
    told: list[int] = []

    curve = attainment_curve(fleet, QUICK, told.append)

    # A lockstep of two rows takes 40 ms: 50 requests per second, those of 10 robots.
    assert curve.knee is not None
    assert 4 <= curve.knee <= 12
    assert set(populations(curve)) <= set(told)
    assert curve.points[0].mean > 0.98 > curve.points[-1].mean
    assert curve == attainment_curve(fleet, QUICK)


@pytest.mark.slow
def test_points_show_each_model_where_there_are_several() -> None:
    models = (model_of("pi0"), model_of("act"))
    fleet = fleet_of(group_of(2), group_of(2, model="act"), setup=setup_of(*models))

    curve = attainment_curve(fleet, QUICK)

    assert set(curve.points[-1].by_model) == {"act", "pi0"}
    assert all(0 <= share <= 1 for share in curve.points[-1].by_model.values())


def test_a_fleet_without_robots_has_no_curve() -> None:
    with pytest.raises(ConfigError, match="without robots"):
        attainment_curve(fleet_of(), QUICK)


def test_robots_too_slow_for_the_time_given_are_not_taken_for_a_failure() -> None:
    fleet = fleet_of(group_of(1, rate_hz=0.001))

    with pytest.raises(ConfigError, match="a population of 1 sent nothing in 2 s: simulate longer"):
        attainment_curve(fleet, QUICK)


@pytest.mark.parametrize(
    ("seeds", "target", "message"),
    [((0,), 0.98, "at least 2 seeds, got 1"), ((0, 1), 1.0, "target"), ((0, 1), 98, "target")],
)
def test_an_impossible_sweep_is_refused(
    seeds: tuple[int, ...], target: float, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Sweep(seeds=seeds, target=target)
