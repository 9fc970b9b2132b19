"""The knee is where the bound says it is, and doubt costs draws while certainty does not."""

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from tests.core.driving import model_of, profile_of

from takt.core.attainment import lower_bound
from takt.core.trace import Setup
from takt.errors import ConfigError
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.knee import (
    Criterion,
    Draw,
    Job,
    Knee,
    Measured,
    bracket,
    clearly_fails,
    find_knee,
    serially,
)
from takt.sim.network import ConstantNetwork
from takt.units import SECOND, ms


class Attained:
    """A device whose attainment falls linearly from a given population on."""

    def __init__(self, until: int, *, slope: float = 0.05, noise: float = 0.0) -> None:
        self.until, self.slope, self.noise = until, slope, noise
        self.jobs: list[Job] = []

    def run(self, jobs: Sequence[Job]) -> list[Draw]:
        self.jobs += jobs
        return [self.draw(job) for job in jobs]

    def draw(self, job: Job) -> Draw:
        wobble = self.noise * Random(f"{job.seed}/{job.population}").uniform(-1, 1)
        lost = self.slope * max(job.population - self.until, 0)
        attainment = min(max(1 - lost + wobble, 0.0), 1.0)
        return Draw(attainment, attainment, {"pi0": attainment})


@pytest.mark.parametrize("until", [1, 2, 7, 16, 33, 200])
@pytest.mark.parametrize("start", [1, 16, 100])
def test_a_sharp_knee_is_found_from_anywhere(until: int, start: int) -> None:
    knee = find_knee(Attained(until).run, Criterion(), start=start)

    assert knee.robots == knee.robots_by_mean == until


def test_a_device_that_carries_nobody_has_no_knee() -> None:
    knee = find_knee(Attained(0, slope=0.5).run, Criterion())

    assert knee.robots == 0
    assert [it.population for it in knee.measured][:1] == [1]


def test_every_population_from_near_the_knee_to_two_above_it_is_measured() -> None:
    measured = [it.population for it in find_knee(Attained(40).run, Criterion()).measured]

    assert measured[0] <= 0.7 * 40 + 1
    assert set(range(37, 43)) <= set(measured)


def test_a_population_below_the_knee_that_fails_ends_it() -> None:
    """The largest population below which all hold, though 21 would hold again."""

    def run(jobs: Sequence[Job]) -> list[Draw]:
        rates = [0.9 if job.population == 19 or job.population > 21 else 1.0 for job in jobs]
        return [Draw(rate, rate, {}) for rate in rates]

    assert find_knee(run, Criterion(), near=21).robots == 18


def test_a_bracket_that_was_too_high_is_left_downwards() -> None:
    assert find_knee(Attained(5).run, Criterion(), near=80).robots == 5


def test_where_the_mean_holds_and_the_bound_does_not_the_bound_is_looked_for_lower() -> None:
    """Below 30 nothing is ever late; from there on every fifth draw is."""

    def run(jobs: Sequence[Job]) -> list[Draw]:
        return [
            Draw(1.0 if job.population < 30 else 0.995 - 0.07 * (job.seed % 5 == 1), 1.0, {})
            if job.population < 60
            else Draw(0.5, 0.5, {})
            for job in jobs
        ]

    knee = find_knee(run, Criterion(), near=59)

    assert (knee.robots, knee.robots_by_mean) == (29, 59)


def test_a_population_without_doubt_is_drawn_three_times_and_one_in_doubt_to_the_end() -> None:
    device = Attained(80, slope=0.02, noise=0.004)

    knee = find_knee(device.run, Criterion(num_draws=20))

    draws = {it.population: len(it.draws) for it in knee.measured}
    assert draws[min(draws)] == 3
    assert max(draws.values()) == 20


@pytest.mark.parametrize(
    ("population", "sure_after"), [(60, 3), (50, 3), (30, 5), (15, 10), (9, 20)]
)
def test_nobody_late_is_no_proof_before_enough_robots_were_drawn(
    population: int, sure_after: int
) -> None:
    def run(jobs: Sequence[Job]) -> list[Draw]:
        return [Draw(float(job.population <= population), 1.0, {}) for job in jobs]

    knee = find_knee(run, Criterion(), near=population)

    (drawn,) = [it.draws for it in knee.measured if it.population == population]
    assert len(drawn) == sure_after


def test_a_robot_that_is_late_in_a_later_draw_alone_moves_the_published_knee() -> None:
    """Ten robots are on time in three draws, and two of them never in the other two."""

    def run(jobs: Sequence[Job]) -> list[Draw]:
        return [
            Draw(0.8 if job.population >= 10 and job.seed in (3, 4) else 1.0, 0.0, {})
            for job in jobs
        ]

    knee = find_knee(run, Criterion(num_draws=5), near=10)

    assert knee.robots_by_mean == 9


def test_robots_of_several_models_are_seen_as_those_of_one_of_them() -> None:
    def measured(*models: str) -> Measured:
        on_time = Draw(1.0, 1.0, dict.fromkeys(models, 1.0))
        return Measured(population=60, draws=(on_time,) * 3)

    assert measured("pi0").is_sure(0.98)
    assert not measured("pi0", "smolvla").is_sure(0.98)


def test_draws_have_the_same_seeds_at_every_population() -> None:
    device = Attained(20)

    find_knee(device.run, Criterion())

    full = [job for job in device.jobs if job.duration == 60 * SECOND]
    assert {job.seed for job in full} <= set(range(20))
    assert all(job.warm_up == 5 * SECOND for job in full)


def test_a_picture_gets_populations_further_off_without_moving_the_knee() -> None:
    knee = find_knee(Attained(40).run, Criterion(), around=(0.25, 0.5, 1.5, 2.0))

    assert {10, 20, 60, 80} <= {it.population for it in knee.measured}
    assert knee.robots == 40


def test_the_draws_begin_with_the_seed_asked_for() -> None:
    device = Attained(20)

    find_knee(device.run, Criterion(first_seed=100))

    assert {job.seed for job in device.jobs} <= set(range(100, 120))


def test_the_bound_is_one_sided_and_the_published_criterion_takes_five_draws() -> None:
    attainments = [0.99, 0.97, 0.98, 0.99, 1.0, 0.5]
    measured = Measured(population=3, draws=tuple(Draw(a, a / 2, {}) for a in attainments))

    assert measured.bound == lower_bound(attainments)
    assert measured.mean_of_epochs == pytest.approx(0.986)
    assert measured.worst_robot == pytest.approx(sum(attainments) / 12)
    assert Knee(target=0.98, measured=(measured,)).robots_by_mean == 3
    assert Knee(target=0.98, measured=(measured,)).robots == 0


def test_the_bracket_is_the_largest_population_that_seems_to_hold() -> None:
    assert bracket(Attained(13).run, Criterion()) == 13
    assert bracket(Attained(0, slope=1.0).run, Criterion()) == 0


@pytest.mark.parametrize("carried", [20, 21, 22, 23, 40])
def test_a_bracket_above_a_population_that_holds_is_found_close_above_it(carried: int) -> None:
    device = Attained(carried)

    assert bracket(device.run, Criterion(), held=20) == carried
    assert max(job.population for job in device.jobs) <= 2 * carried - 18


def test_only_what_is_far_below_the_target_fails_clearly() -> None:
    device = Attained(20, slope=0.02)

    assert [clearly_fails(device.run, Criterion(), n) for n in (20, 22, 30)] == [False, False, True]
    assert {job.duration for job in device.jobs} == {2 * SECOND}


def test_a_glance_in_which_nobody_asks_shows_nothing() -> None:
    lazy = replace(fleet(), robots=(replace(fleet().robots[0], rate_hz=0.01),))

    assert not clearly_fails(serially(lazy), Criterion(), 1)


def fleet() -> Fleet:
    """Two models on one device; a request needs 30 ns of it and has 156 ms."""
    models = (model_of("fast", slo=ms(156)), model_of("slow", slo=1))
    return Fleet(
        devices={"gpu": Setup(models=models, profile=profile_of(*models), formation="lockstep")},
        robots=tuple(
            RobotGroup(model=model.name, count=1, device="gpu", rate_hz=2.0) for model in models
        ),
        network=ConstantNetwork(),
    )


def test_a_fleet_is_held_to_the_model_that_is_served_worst() -> None:
    """No answer of `slow` can come within a nanosecond."""
    (drawn,) = serially(fleet())([Job(4, 0, 3 * SECOND, 0)])

    assert drawn.by_model == {"fast": 1.0, "slow": 0.0}
    assert drawn.attainment == drawn.worst_robot == 0.0


def test_equal_seeds_give_equal_draws() -> None:
    run = serially(fleet())

    assert run([Job(4, 3, 3 * SECOND, 0)]) == run([Job(4, 3, 3 * SECOND, 0)])


def test_a_time_in_which_nobody_sends_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing was sent"):
        serially(fleet())([Job(1, 0, 1, 0)])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"target": 1.0}, "target must lie between 0 and 1, got 1.0"),
        ({"target": math.nan}, "target"),
        ({"num_draws": 1}, "at least 2 draws, got 1"),
        ({"duration": 0}, "duration must be positive"),
        ({"warm_up": -1}, "warm_up"),
    ],
)
def test_an_impossible_criterion_is_refused(options: dict[str, float], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Criterion(**options)  # type: ignore[arg-type]
