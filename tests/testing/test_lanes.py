"""Fake lanes keep the time of their profile, and run what they are given."""

import numpy as np
from tests.core.driving import model_of, profile_of, works_of

from takt.core.launch import Lane, Launch
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.request import Stage
from takt.link.messages import Outcome
from takt.runtime.admission import open_row
from takt.runtime.launches import Job
from takt.testing import FakeGateway, FakeLanes, ManualClock, fake_model

MODEL = fake_model(model_of())


def profile(model: Model, slowdown: float) -> Profile:
    works = list(works_of(model))
    return Profile(
        units=4,
        shares=(2, 4),
        solo=dict.fromkeys(works, 10),
        slowdown={(a, b): slowdown for a in works for b in works if a.stage is not b.stage},
    )


def job_of(stage: Stage, seq: int = 1, device: int = 0) -> Job:
    gateway = FakeGateway()
    submit = gateway.arrive(MODEL, 0, value=float(seq)).submit
    launch = Launch(Lane(device, stage), "pi0", (seq,), 1, 0, 4)
    return Job(
        launch=launch, model=MODEL, rows=(open_row(gateway, submit, MODEL),), kv_slots=(seq,)
    )


def test_a_launch_ends_when_its_profiled_time_is_over() -> None:
    clock = ManualClock()
    lanes = FakeLanes(profile_of(MODEL.model), clock.now)
    lanes.start(job_of(Stage.PREFIX))

    clock.advance(9)
    early = lanes.take_ended()
    clock.advance(1)

    assert early == []
    assert [completed.lane.stage for completed in lanes.take_ended()] == [Stage.PREFIX]
    assert lanes.next_end() is None


def test_launches_side_by_side_slow_each_other_down() -> None:
    clock = ManualClock()
    lanes = FakeLanes(profile(MODEL.model, 2.0), clock.now)
    lanes.start(job_of(Stage.PREFIX))
    clock.advance(5)

    lanes.start(job_of(Stage.DENOISE, seq=2))

    assert lanes.next_end() == 5 + 10, "half of the prefix was left"


def test_devices_of_different_hardware_do_not_slow_each_other_down() -> None:
    clock = ManualClock()
    lanes = FakeLanes(profile(MODEL.model, 2.0), clock.now, physical=(0, 1))
    lanes.start(job_of(Stage.PREFIX, device=0))

    lanes.start(job_of(Stage.DENOISE, seq=2, device=1))

    assert lanes.next_end() == 10


def test_a_row_fails_where_it_is_made_to() -> None:
    clock = ManualClock()
    lanes = FakeLanes(profile_of(MODEL.model), clock.now, failing={1: Stage.DENOISE})
    lanes.start(job_of(Stage.PREFIX))
    clock.advance(10)
    prefix = lanes.take_ended()
    lanes.start(job_of(Stage.DENOISE))
    clock.advance(20)

    [denoise] = lanes.take_ended()

    assert prefix[0].failures == {}
    assert denoise.failures[1].outcome is Outcome.FAILED


def test_the_network_runs_for_real() -> None:
    clock = ManualClock()
    lanes = FakeLanes(profile_of(MODEL.model), clock.now)
    lanes.start(job_of(Stage.PREFIX, seq=3))
    clock.advance(10)
    lanes.take_ended()
    lanes.start(job_of(Stage.DENOISE, seq=3))
    clock.advance(20)

    [completed] = lanes.take_ended()

    np.testing.assert_array_equal(completed.chunks[3], np.full((3, 2), 3.0))


def test_a_function_is_called_at_once() -> None:
    called: list[int] = []
    lanes = FakeLanes(profile_of(MODEL.model), ManualClock().now)

    lanes.call(Stage.PREFIX, lambda: called.append(1))

    assert called == [1]


def test_closed_lanes_run_nothing() -> None:
    lanes = FakeLanes(profile_of(MODEL.model), ManualClock().now)
    lanes.start(job_of(Stage.PREFIX))

    lanes.close()

    assert lanes.is_closed
    assert lanes.running == {}
