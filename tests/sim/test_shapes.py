"""Shapes race on equal terms, and the one to beat is never beaten by luck of the race."""

from collections.abc import Sequence

import pytest
from tests.core.driving import model_of, profile_of

from takt.core.trace import Setup
from takt.errors import ConfigError
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.knee import Criterion, Draw, Job, Runner
from takt.sim.network import ConstantNetwork
from takt.sim.shapes import Shape, best_shape, shapes_of, sound_shapes
from takt.units import SECOND, ms


def shape(formation: str, limit: int = 1) -> Shape:
    return Shape(formation=formation, prefix_limit=limit, denoise_limit=4)


def carrying(robots: int) -> Runner:
    def run(jobs: Sequence[Job]) -> list[Draw]:
        rates = [1.0 if job.population <= robots else 0.5 for job in jobs]
        return [Draw(rate, rate, {}) for rate in rates]

    return run


@pytest.mark.parametrize(
    ("carried", "winner", "robots"),
    [
        ({"lockstep": 20, "flowing": 25, "monolithic": 12}, "flowing", 25),
        ({"lockstep": 20, "flowing": 20, "monolithic": 20}, "lockstep", 20),
        ({"lockstep": 1, "flowing": 0, "monolithic": 60}, "monolithic", 60),
    ],
)
def test_the_shape_that_carries_most_wins_and_of_equals_the_first(
    carried: dict[str, int], winner: str, robots: int
) -> None:
    shapes = [shape(name) for name in carried]

    best = best_shape(shapes, lambda it: carrying(carried[it.formation]), Criterion())

    assert (best.shape.formation, best.knee.robots) == (winner, robots)


def test_the_answer_is_never_below_the_first_formation_whatever_the_race_says() -> None:
    """Short draws flatter `flowing`; the long ones tell."""

    def flattered(jobs: Sequence[Job]) -> list[Draw]:
        short = [job.duration < Criterion().duration for job in jobs]
        return [Draw(1.0 if s else 0.5, 0.5, {}) for s in short]

    runners = {"lockstep": carrying(9), "flowing": flattered}
    shapes = [shape("lockstep"), shape("flowing")]

    best = best_shape(shapes, lambda it: runners[it.formation], Criterion())

    assert (best.shape.formation, best.knee.robots) == ("lockstep", 9)


def test_a_shape_that_is_far_behind_costs_a_glance() -> None:
    """Two draws of two seconds; one that ties is tried with one robot more, and no further."""
    asked: dict[str, list[Job]] = {"flowing": [], "monolithic": []}

    def runner(it: Shape) -> Runner:
        def run(jobs: Sequence[Job]) -> list[Draw]:
            asked.setdefault(it.formation, []).extend(jobs)
            rates = {"lockstep": 1.0, "flowing": 0.95, "monolithic": 0.5}
            return [
                Draw(1.0 if job.population <= 20 else rates[it.formation] - 0.05, 1.0, {})
                for job in jobs
            ]

        return run

    best = best_shape(
        [shape(n) for n in ("lockstep", "flowing", "monolithic")], runner, Criterion()
    )

    assert (best.shape.formation, best.knee.robots) == ("lockstep", 20)
    assert {(job.population, job.duration) for job in asked["monolithic"]} == {(21, 2 * SECOND)}
    assert {job.population for job in asked["flowing"]} == {21}
    assert max(job.duration for job in asked["flowing"]) == 20 * SECOND


def test_auto_tries_every_formation_of_a_single_device_lockstep_first() -> None:
    names = list(dict.fromkeys(it.formation for it in shapes_of("auto")))

    assert names == ["lockstep", "flowing", "monolithic", "step_admission"]


@pytest.mark.parametrize(("gathering", "rows"), [(None, {0, 4, 8}), (True, {4, 8}), (False, {0})])
def test_gathering_is_tried_as_asked(gathering: bool | None, rows: set[int]) -> None:
    found = {it.options.get("gathering", 0) for it in shapes_of("flowing", gathering)}

    assert found == rows


def test_what_a_formation_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigError, match="'monolithic' has no gathering"):
        shapes_of("monolithic", gathering=True)
    with pytest.raises(ConfigError, match="no formation 'bogus'; known: auto, lockstep"):
        shapes_of("bogus")


def fleet(it: Shape, slo_ms: float) -> Fleet:
    """Prefix and denoise launches of 10 and 20 ms, whatever their size."""
    model = model_of("pi0", slo=ms(slo_ms), prefix=it.prefix_sizes, denoise=it.denoise_sizes)
    setup = Setup(
        models=(model,),
        profile=profile_of(model, prefix=ms(10) * it.prefix_limit, denoise=ms(20)),
        formation=it.formation,
    )
    group = RobotGroup(model="pi0", count=1, device="gpu", rate_hz=2.0)
    return Fleet(
        devices={"gpu": setup}, robots=(group,), network=ConstantNetwork(up_ms=0, down_ms=0)
    )


def test_batches_too_large_for_the_promise_are_left_out() -> None:
    """Prefix limits 1 to 4 expect 30 to 60 ms in `monolithic`, half as much again must fit."""
    sound = sound_shapes(shapes_of("monolithic")[:12], lambda it: fleet(it, 76))

    assert [it.prefix_limit for it in sound] == [1, 2, 3]
    assert {it.denoise_limit for it in sound} == {16}


def test_a_formation_without_a_sound_shape_keeps_small_denoise_batches() -> None:
    kept = sound_shapes(shapes_of("monolithic")[:12], lambda it: fleet(it, 5))

    assert [(it.prefix_limit, it.denoise_limit) for it in kept] == [(n, 4) for n in range(1, 5)]
