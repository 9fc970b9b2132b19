"""A plan says in plain words what fits, why not, and how sure it is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.core.driving import model_of, profile_of

from takt.cli.plan_report import Answer, figures, show
from takt.core.trace import Setup
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.knee import Criterion, Draw, Knee, Measured
from takt.sim.network import ConstantNetwork
from takt.sim.shapes import Carried, Shape
from takt.units import ms


def measured(population: int, *attainments: float) -> Measured:
    return Measured(population=population, draws=tuple(Draw(a, a / 2, {}) for a in attainments))


SURE, LOST = (1.0, 1.0, 1.0), (0.2, 0.4, 0.3)
MODELS = (model_of("pi0", slo=ms(100)), model_of("act", slo=ms(40), denoise=()))


def answer(*populations: Measured, asked: Mapping[str, int] | None = None) -> Answer:
    """Two models on a device that takes 10 ms for a prefix and 20 ms for a denoise loop."""
    setup = Setup(
        models=MODELS,
        profile=profile_of(*MODELS, prefix=ms(10), denoise=ms(20)),
        formation="flowing",
    )
    groups = tuple(
        RobotGroup(model=m.name, count=n, device="gpu", rate_hz=2.0)
        for m, n in zip(MODELS, (asked or {"pi0": 1, "act": 1}).values(), strict=True)
    )
    return Answer(
        carried=Carried(
            shape=Shape(formation="flowing", prefix_limit=4, denoise_limit=4),
            knee=Knee(target=0.98, measured=populations),
        ),
        fleet=Fleet(
            devices={"gpu": setup}, robots=groups, network=ConstantNetwork(up_ms=1, down_ms=1)
        ),
        criterion=Criterion(num_draws=4),
        asked=asked or {},
        where="h100",
        left_out={},
    )


def said(asking: Answer, capsys: pytest.CaptureFixture[str]) -> str:
    show(figures(asking, "h100", 2.0))
    return " ".join(capsys.readouterr().out.split())


def test_the_worst_robot_and_what_was_decided_early_stand_in_the_figures() -> None:
    found = figures(answer(measured(50, *SURE), measured(51, 0.99, 0.99, 1.0, 0.98)), "h100", 2.0)

    assert found["robots_at_target"] == 51
    assert found["worst_robot"] == pytest.approx(0.495)
    assert [row["decided_early"] for row in found["attainment"]] == [True, False]


def test_a_person_reads_both_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(answer(measured(50, *SURE), measured(51, *LOST)), capsys)

    assert "50 robots hold 98% on h100" in out
    assert "the worst of them gets 50.00% of its answers in time" in out
    assert "3, early" in out
    assert "early: fewer than 4 draws left no doubt at 99 %" in out


def test_the_time_a_chunk_takes_alone_stands_beside_the_promise() -> None:
    found = figures(answer(measured(1, *SURE)), "h100", 2.0)

    assert found["models"]["pi0"] == {"slo_ms": 100.0, "alone_ms": 30.0}
    assert found["models"]["act"] == {"slo_ms": 40.0, "alone_ms": 10.0}
    assert found["network_allowance_ms"] == 2.0


def test_a_mix_that_does_not_fit_says_what_of_it_does_and_what_it_would_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asking = answer(measured(4, *SURE), measured(5, *LOST), asked={"pi0": 6, "act": 3})

    mix: dict[str, Any] = figures(asking, "h100", 2.0)["mix"]
    out = said(asking, capsys)

    assert mix["robots_that_fit"] == {"pi0": 3, "act": 1}
    assert (mix["fits"], mix["devices_needed"]) == (False, 3)
    assert "6 pi0, 3 act: does not fit; 3 pi0, 1 act (44%) do, so it takes 3 such devices" in out
    assert "--discipline least_slack may carry more" in out


def test_a_mix_that_fits_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(answer(measured(4, *SURE), asked={"pi0": 2, "act": 2}), capsys)

    assert out.startswith("2 pi0, 2 act: fits")


def test_a_mix_of_which_no_robot_fits_asks_for_no_number_of_devices(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = said(answer(measured(1, *LOST), asked={"pi0": 2, "act": 2}), capsys)

    assert "does not fit, not even one robot of it" in out
    assert "a single robot would be on time, but not surely beside others" in out


def test_a_promise_shorter_than_a_chunk_is_said_to_be_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asking = answer(measured(1, *LOST))
    setup = asking.fleet.devices["gpu"]
    hasty = replace(setup, models=(replace(MODELS[0], slo=ms(31)), MODELS[1]))

    out = said(replace(asking, fleet=replace(asking.fleet, devices={"gpu": hasty})), capsys)

    assert (
        "pi0 cannot be on time: 31 ms are promised, and a chunk takes 30.0 ms on an idle device,"
        " the network up to 2.0 ms" in out
    )


def test_a_bound_below_nothing_is_shown_as_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(answer(measured(1, 0.0, 1.0)), capsys)

    assert "│ 50.00% │ 0.00% │" in out.replace("  ", " ")


def test_what_was_not_tried_is_named_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    asking = replace(answer(measured(4, *SURE)), left_out={"step_admission": "[gpu]: no steps"})

    assert "not tried: step_admission: [gpu]: no steps" in said(asking, capsys)
