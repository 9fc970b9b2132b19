"""Requests join and leave at every denoise step, and each step pays for it."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.core.driving import Driver, model_of, profile_of, request_of

from takt.core.formations.step_admission import StepAdmission
from takt.core.profile import Profile
from takt.core.request import Phase
from takt.core.trace import Setup
from takt.errors import ConfigError

MODEL = model_of("pi0", slo=1_000, prefix=(1,), denoise=(1, 2), steps=4)
COSTS: Mapping[str, Any] = {"inspection_ms": 2e-6, "packing_ms": 1e-6}  # 2 ns and 1 ns
STEP = 20 // 4 + 2 + 1
"""One row's denoise step."""


def profile() -> Profile:
    plain = profile_of(MODEL)
    return Profile.from_json({**plain.to_json(), "transfer": [["pi0", 0, 7]]})


def driven(arrivals: list[int], **options: Any) -> Driver:  # noqa: ANN401
    driver = Driver(
        Setup(
            models=(MODEL,),
            profile=profile(),
            formation="step_admission",
            options={**COSTS, **options},
        )
    )
    driver.run([request_of(seq, at=at) for seq, at in enumerate(arrivals)])
    return driver


def test_each_step_is_a_launch_that_pays_inspection_and_packing() -> None:
    steps = [run for run in driven([0]).schedule if run.stage == "denoise"]

    assert [(run.start, run.end) for run in steps] == [
        (10 + STEP * n, 10 + STEP * (n + 1)) for n in range(4)
    ]


def test_a_request_joins_between_two_steps_and_another_leaves() -> None:
    steps = [run.requests for run in driven([0, 5]).schedule if run.stage == "denoise"]

    assert steps[0] == (0,)
    assert (0, 1) in steps
    assert steps[-1] == (1,)
    assert sum(0 in rows for rows in steps) == sum(1 in rows for rows in steps) == 4


def test_on_two_devices_the_cache_moves_before_the_first_step() -> None:
    first, *_ = [run for run in driven([0], devices=2).schedule if run.stage == "denoise"]

    assert first.start == 10 + 7


def test_upstreams_single_stage_takes_one_request_through_everything() -> None:
    schedule = driven([0, 0], single_stage=True).schedule

    assert [(run.start, run.end, run.stage) for run in schedule] == [
        (0, 10, "prefix"),
        (10, 33, "denoise"),
        (33, 43, "prefix"),
        (43, 66, "denoise"),
    ]


def test_a_request_may_be_cancelled_between_two_steps() -> None:
    setup = Setup(
        models=(MODEL,), profile=profile(), formation="step_admission", options=dict(COSTS)
    )
    scheduler = setup.scheduler()
    request = request_of(0)
    scheduler.submit(request, 0)
    (prefix,) = scheduler.decide(0).launches
    scheduler.finish(prefix.lane, 10)
    (step,) = scheduler.decide(10).launches
    scheduler.finish(step.lane, 10 + STEP)
    assert request.phase is Phase.READY

    scheduler.cancel(0, 10 + STEP)

    assert request.phase is Phase.CANCELLED
    assert scheduler.decide(10 + STEP).launches == ()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"devices": 3}, "devices must be 1 or 2, got 3"),
        ({"devices": 2, "single_stage": True}, "single_stage runs on one device"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        StepAdmission(**options)


def test_negative_costs_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 0"):
        Setup(
            models=(MODEL,),
            profile=profile(),
            formation="step_admission",
            options={"inspection_ms": -1.0},
        ).scheduler()
