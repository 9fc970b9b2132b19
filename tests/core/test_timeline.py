"""Each request's time is accounted for from its arrival to its outcome."""

from tests.core.driving import (
    DENOISE,
    PREFIX,
    Driver,
    model_of,
    profile_of,
    request_of,
    scheduler_of,
)
from tests.core.formations.dozen import driven

from takt.core.launch import Lane
from takt.core.request import Phase, Stage
from takt.core.scheduler import Scheduler
from takt.core.timeline import Outcome, Timeline
from takt.core.trace import Setup


def outcomes(timeline: Timeline, scheduler: Scheduler) -> list[Outcome]:
    found = map(timeline.add, scheduler.take_events())
    return [outcome for outcome in found if outcome is not None]


def test_a_served_request_has_four_spans_that_add_up_to_its_latency() -> None:
    timeline = Timeline()
    scheduler = scheduler_of()
    scheduler.submit(request_of(0, at=2), 3)
    scheduler.decide(5)
    scheduler.finish(PREFIX, 15)
    scheduler.decide(18)
    scheduler.finish(DENOISE, 40)

    (outcome,) = outcomes(timeline, scheduler)

    assert outcome == Outcome(0, Phase.SERVED, at=40, queue=3, prefix=10, wait=3, denoise=22)
    assert outcome.queue + outcome.prefix + outcome.wait + outcome.denoise == 40 - 2


def test_a_single_pass_request_neither_waits_nor_denoises() -> None:
    scheduler = scheduler_of(model_of("act", denoise=()))
    scheduler.submit(request_of(0, "act"), 0)
    scheduler.decide(4)
    scheduler.finish(PREFIX, 9)

    assert outcomes(Timeline(), scheduler) == [Outcome(0, Phase.SERVED, 9, 4, 5, 0, 0)]


def test_a_request_that_ends_in_the_queue_has_spent_its_time_there() -> None:
    scheduler = scheduler_of()
    scheduler.submit(request_of(0, at=1), 1)
    scheduler.cancel(0, 8)

    assert outcomes(Timeline(), scheduler) == [Outcome(0, Phase.CANCELLED, 8, 7, 0, 0, 0)]


def test_a_request_that_ends_in_a_launch_has_spent_its_time_up_to_then() -> None:
    scheduler = scheduler_of()
    scheduler.submit(request_of(0), 0)
    scheduler.decide(4)
    scheduler.cancel(0, 9)
    scheduler.finish(PREFIX, 30)

    assert outcomes(Timeline(), scheduler) == [Outcome(0, Phase.CANCELLED, 9, 4, 5, 0, 0)]


def test_a_request_that_expires_between_its_stages_has_waited_there() -> None:
    scheduler = scheduler_of()
    scheduler.submit(request_of(0, expires=20), 0)
    scheduler.decide(4)
    scheduler.finish(PREFIX, 14)
    scheduler.decide(21)

    assert outcomes(Timeline(), scheduler) == [Outcome(0, Phase.EXPIRED, 21, 4, 10, 7, 0)]


def test_busy_lanes_and_rows_are_those_of_the_launches() -> None:
    driver = driven("lockstep")
    timeline = Timeline()
    for event in driver.events:
        timeline.add(event)

    for stage in Stage:
        runs = [run for run in driver.schedule if run.stage == stage.name.lower()]
        assert timeline.busy[Lane(0, stage)] == sum(run.end - run.start for run in runs)
        assert timeline.rows[stage] == [len(run.requests) for run in runs]


def test_spans_add_up_for_every_request_of_a_run() -> None:
    model = model_of(prefix=(1, 2), denoise=(1, 2, 4))
    driver = Driver(Setup(models=(model,), profile=profile_of(model)))
    driver.run([request_of(seq, at=seq * 7, expires=seq * 7 + 60) for seq in range(20)])
    timeline = Timeline()

    found = [outcome for event in driver.events if (outcome := timeline.add(event))]

    assert {outcome.seq for outcome in found} == set(range(20))
    assert {outcome.phase for outcome in found} == {Phase.SERVED, Phase.EXPIRED}
    for seq, _, at, *spans in found:
        assert sum(spans) == at - seq * 7
