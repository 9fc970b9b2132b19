"""The formation that carries the most of the declared robots is chosen, in bounded time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from takt.core.formations import FORMATIONS
from takt.errors import ConfigError
from takt.hardware import model_for, profile_for
from takt.schema.serving import ServedModel
from takt.server.composition import DevicePlan, GatewayPlan, ServerPlan
from takt.server.formation_choice import (
    AUTO,
    Choice,
    ChosenDevice,
    Load,
    choose_formation,
    choose_formations,
    driven_in,
    shapes_here,
)
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.knee import Draw, Job, Runner
from takt.sim.network import ConstantNetwork
from takt.sim.shapes import Shape
from takt.testing.clock import ManualClock
from takt.units import SECOND

PI0 = model_for("pi0", prefix_sizes=(1, 2), denoise_sizes=(1, 4))
LOAD = Load(
    models=(PI0,),
    profile=profile_for("rtx-pro-6000", [PI0]),
    robots=(RobotGroup(model="pi0", count=6, device="0", rate_hz=2.0),),
    network=ConstantNetwork(),
)
DEVICE = DevicePlan(
    models=(ServedModel(name="pi0", policy="paced:pi0"),), formation=AUTO, paced="rtx-pro-6000"
)
KNEES = {"lockstep": 12, "flowing": 17, "monolithic": 9}


def carrying(knees: dict[str, int], clock: ManualClock, cost: int = 0) -> object:
    """Stands in for the simulator: each formation holds up to its knee; each job takes ``cost``."""

    def runner(fleet: Fleet) -> Runner:
        most = knees[fleet.devices["0"].formation]

        def run(jobs: Sequence[Job]) -> Iterable[Draw]:
            clock.advance(cost * len(jobs))
            share = [1.0 if job.population <= most else 0.5 for job in jobs]
            return [Draw(held, held, {"pi0": held}) for held in share]

        return run

    return runner


def chosen(knees: dict[str, int], cost: int = 0, within: int = SECOND):  # noqa: ANN201 - a Choice
    clock = ManualClock()
    runner = carrying(knees, clock, cost)
    return choose_formation(LOAD, DEVICE, runner, within=within, clock=clock.now)  # type: ignore[arg-type]


@pytest.mark.parametrize("best", KNEES)
def test_the_formation_with_the_largest_knee_is_chosen(best: str) -> None:
    choice = chosen({**KNEES, best: 23})

    assert choice.shape.formation == best
    assert choice.candidates[0].robots == 23
    assert choice.is_complete


def against(present: Shape, carries: int, cost: int = 0) -> Choice:
    """Flowing carries 17; the present shape, in its own formation, so many."""
    clock = ManualClock()
    runner = carrying({**KNEES, present.formation: carries}, clock, cost)
    return choose_formation(
        LOAD,
        DEVICE,
        runner,  # type: ignore[arg-type]
        present=present,
        within=SECOND,
        clock=clock.now,
    )


MONOLITHIC = next(shape for shape in shapes_here([PI0]) if shape.formation == "monolithic")


@pytest.mark.parametrize(("carries", "is_better"), [(9, True), (16, True), (17, False)])
def test_the_present_shape_gives_way_to_one_that_carries_a_twentieth_more(
    carries: int, is_better: bool
) -> None:
    choice = against(MONOLITHIC, carries)

    assert choice.present == (MONOLITHIC, carries, None)
    assert choice.is_better is is_better
    assert (choice.shape == MONOLITHIC) is not is_better


def test_a_choice_that_was_cut_off_is_no_reason_to_change() -> None:
    choice = against(MONOLITHIC, 1, cost=SECOND // 10)

    assert not choice.is_complete
    assert not choice.is_better


def test_a_shape_that_carries_nobody_is_no_reason_to_change() -> None:
    unknown = Shape(formation="lockstep", prefix_limit=9, denoise_limit=9)
    nobody = choose_formation(
        LOAD,
        DEVICE,
        carrying(dict.fromkeys(KNEES, 0), clock := ManualClock()),  # type: ignore[arg-type]
        present=unknown,
        within=SECOND,
        clock=clock.now,
    )

    assert nobody.is_complete
    assert nobody.shape != unknown
    assert not nobody.is_better


def test_what_is_simulated_varies_as_the_load_says() -> None:
    seen: list[Mapping[str, float]] = []

    def runner(fleet: Fleet) -> Runner:
        seen.append(fleet.spreads)
        return carrying(KNEES, ManualClock())(fleet)  # type: ignore[operator]

    choose_formation(replace(LOAD, spread=0.03), DEVICE, runner)

    assert seen
    assert all(spreads == {"0": 0.03} for spreads in seen)


def test_at_the_start_there_is_no_present_shape() -> None:
    assert chosen(KNEES).present is None
    assert not chosen(KNEES).is_better


def test_of_equals_lockstep_is_chosen() -> None:
    assert chosen(dict.fromkeys(KNEES, 12)).shape.formation == "lockstep"


def test_the_reason_names_every_formation_with_its_knee() -> None:
    reason = chosen(KNEES).reason

    assert reason.startswith("formation flowing, batches up to ")
    assert "17 robots predicted, 6 declared" in reason
    assert "lockstep 12" in reason
    assert "monolithic fewer than 18" in reason
    assert "\n" not in reason


def test_when_the_time_is_up_what_held_most_is_chosen_and_the_line_says_so() -> None:
    choice = chosen(KNEES, cost=SECOND // 10)

    assert not choice.is_complete
    assert choice.took < 2 * SECOND
    assert "cut off" in choice.reason


def test_without_any_time_lockstep_is_chosen() -> None:
    choice = chosen(KNEES, within=0)

    assert choice.shape.formation == "lockstep"
    assert "nothing simulated" in choice.reason
    assert "flowing not simulated in time" in choice.reason


def test_only_what_a_worker_can_run_within_captured_sizes_is_looked_at() -> None:
    shapes = shapes_here([PI0])

    assert {shape.prefix_limit for shape in shapes} == {1, 2}
    for shape in shapes:
        group = FORMATIONS[shape.formation](**shape.options).group
        assert len(group.home) == 1
        assert group.stepping is None
        (model,) = driven_in([PI0], shape)
        assert {*model.prefix_sizes} <= {1, 2}


def test_a_device_without_declared_robots_is_refused_with_its_name() -> None:
    plan = ServerPlan(devices=(DEVICE,), gateways=(GatewayPlan(),))
    load = Load(models=(PI0,), profile=LOAD.profile, robots=(), network=LOAD.network)

    with pytest.raises(ConfigError, match=r"devices\.0: formation auto: no robots of this device"):
        choose_formations(plan, lambda _: load, lambda _: list, print)  # type: ignore[arg-type]


def test_a_plan_keeps_what_was_named_and_gets_what_was_chosen() -> None:
    clock, said = ManualClock(), list[str]()
    other = DevicePlan(name="1", models=DEVICE.models, formation="monolithic", paced="h100")
    plan = ServerPlan(
        devices=(DEVICE, other), gateways=(GatewayPlan(devices=("0", "1")),), hang_ms=7.0
    )

    kept = list[ChosenDevice]()
    decided = choose_formations(
        plan,
        lambda _: LOAD,
        carrying(KNEES, clock),  # type: ignore[arg-type]
        said.append,
        kept.append,
    )

    assert decided.devices[0].formation == "flowing"
    assert decided.devices[0].prefix_limit is not None
    assert decided.devices[1] is other
    [(device, load, shape)] = kept
    assert (device, load, shape.formation) == (decided.devices[0], LOAD, "flowing")
    assert decided.hang_ms == 7.0
    assert len(said) == 1
    assert said[0].startswith("0: formation flowing")


def test_what_seemed_to_carry_less_is_looked_at_when_the_favourite_disappoints() -> None:
    def runner(fleet: Fleet) -> Runner:
        formation = fleet.devices["0"].formation

        def run(jobs: Sequence[Job]) -> Iterable[Draw]:
            for job in jobs:
                # The first draws, by which shapes are raced, flatter flowing lanes.
                is_flattered = formation == "flowing" and job.seed < 2
                most = {"lockstep": 12, "flowing": 11, "monolithic": 15}[formation]
                holds = job.population <= (20 if is_flattered else most)
                yield Draw(*((1.0, 1.0) if holds else (0.5, 0.5)), {})

        return run

    choice = choose_formation(LOAD, DEVICE, runner, clock=ManualClock().now)

    assert choice.shape.formation != "flowing"
    assert choice.candidates[0].robots == max(c.robots for c in choice.candidates)
