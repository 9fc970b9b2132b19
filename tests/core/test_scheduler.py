"""The rules a request meets on its way: superseding, cancelling, failing."""

import pytest
from tests.core.driving import (
    DENOISE,
    PREFIX,
    endings,
    model_of,
    request_of,
    scheduler_of,
)

from takt.core.events import Cancel, Decide, Ended, Finish, Submit
from takt.core.request import Phase, Stage
from takt.core.scheduler import Lateness, Scheduler
from takt.errors import InvariantError, UsageError


def started(scheduler: Scheduler, now: int) -> list[tuple[int, ...]]:
    """The rows of each launch that is started now."""
    return [launch.requests for launch in scheduler.decide(now).launches]


def one_at_a_time(*names: str, slo: int = 100, lateness: Lateness = Lateness.YIELD) -> Scheduler:
    """A scheduler of models without batches: 10 for a prefix, 20 for a denoise launch."""
    models = [model_of(name, slo=slo, prefix=(1,), denoise=(1,)) for name in names]
    return scheduler_of(*models, lateness=lateness)


# A life without incident


def test_a_request_goes_through_both_stages_and_every_step_is_an_event() -> None:
    scheduler = one_at_a_time("pi0")

    scheduler.submit(request_of(0, at=3, session="arm", due=200, expires=300), 5)
    first = scheduler.decide(5)
    scheduler.finish(PREFIX, 15)
    second = scheduler.decide(15)
    scheduler.finish(DENOISE, 35)

    assert scheduler.take_events() == [
        Submit(5, 0, "pi0", "arm", 3, 200, 200, 300, 0, True),
        Decide(5, first.launches, None),
        Finish(15, PREFIX, ()),
        Decide(15, second.launches, None),
        Finish(35, DENOISE, ()),
        Ended(35, 0, Phase.SERVED),
    ]
    assert scheduler.unfinished == 0


def test_events_are_given_out_once() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0), 0)

    assert len(scheduler.take_events()) == 1
    assert scheduler.take_events() == []


def test_a_single_pass_model_answers_right_after_its_prefix() -> None:
    scheduler = scheduler_of(model_of("act", denoise=()))
    scheduler.submit(request_of(0, "act"), 0)
    scheduler.decide(0)

    scheduler.finish(PREFIX, 10)

    assert endings(scheduler) == [(10, 0, Phase.SERVED)]
    assert started(scheduler, 10) == []


def test_waiting_counts_both_stages_and_unfinished_the_running_too() -> None:
    scheduler = scheduler_of(model_of(prefix=(1,)), formation="lockstep")
    for seq in range(3):
        scheduler.submit(request_of(seq), 0)
    scheduler.decide(0)
    assert (scheduler.waiting, scheduler.unfinished) == (2, 3)

    scheduler.finish(PREFIX, 10)

    assert (scheduler.waiting, scheduler.unfinished) == (3, 3)


# Superseding


def test_the_newest_observation_of_a_session_supersedes_the_one_that_waits() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0, session="arm"), 0)
    scheduler.submit(request_of(1, session="leg"), 0)

    scheduler.submit(request_of(2, session="arm"), 4)

    assert endings(scheduler) == [(4, 0, Phase.SUPERSEDED)]
    assert scheduler.waiting == 2


def test_a_request_whose_prefix_runs_or_has_run_is_not_superseded() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0, session="arm"), 0)
    scheduler.decide(0)
    scheduler.submit(request_of(1, session="arm"), 1)
    scheduler.finish(PREFIX, 10)

    scheduler.submit(request_of(2, session="arm"), 10)

    assert endings(scheduler) == [(10, 1, Phase.SUPERSEDED)]


def test_an_observation_that_must_be_counted_supersedes_nothing() -> None:
    scheduler = one_at_a_time("pi0")

    for seq in range(3):
        scheduler.submit(request_of(seq, session="arm", supersede=False), 0)

    assert endings(scheduler) == []
    assert scheduler.waiting == 3


def test_an_observation_for_another_model_supersedes_too() -> None:
    scheduler = one_at_a_time("pi0", "act")
    scheduler.submit(request_of(0, "pi0", session="arm"), 0)

    scheduler.submit(request_of(1, "act", session="arm"), 0)

    assert endings(scheduler) == [(0, 0, Phase.SUPERSEDED)]


def test_a_session_is_free_again_once_its_request_was_cancelled() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0, session="arm"), 0)
    scheduler.cancel(0, 1)

    scheduler.submit(request_of(1, session="arm"), 2)

    assert endings(scheduler) == [(1, 0, Phase.CANCELLED)]


def test_a_session_is_free_again_once_its_request_has_expired() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0, session="arm", expires=5), 0)
    scheduler.decide(5)

    scheduler.submit(request_of(1, session="arm"), 6)

    assert endings(scheduler) == [(5, 0, Phase.EXPIRED)]


# Cancelling


def test_a_request_that_waits_for_its_prefix_is_cancelled_at_once() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0), 0)

    scheduler.cancel(0, 3)

    assert endings(scheduler) == [(3, 0, Phase.CANCELLED)]
    assert started(scheduler, 3) == []


def test_a_row_cancelled_in_its_prefix_has_no_second_outcome() -> None:
    scheduler = scheduler_of()
    scheduler.submit(request_of(0), 0)
    scheduler.submit(request_of(1), 0)
    scheduler.decide(0)

    scheduler.cancel(0, 4)
    scheduler.finish(PREFIX, 10, failed=[0])

    assert endings(scheduler) == [(4, 0, Phase.CANCELLED)]
    assert started(scheduler, 10) == [(1,)]


def test_a_row_cancelled_while_it_is_denoised_has_no_second_outcome() -> None:
    scheduler = scheduler_of()
    scheduler.submit(request_of(0), 0)
    scheduler.submit(request_of(1), 0)
    scheduler.decide(0)
    scheduler.finish(PREFIX, 10)
    scheduler.decide(10)

    scheduler.cancel(0, 14)
    scheduler.finish(DENOISE, 30)

    assert endings(scheduler) == [(14, 0, Phase.CANCELLED), (30, 1, Phase.SERVED)]


def test_a_request_that_waits_between_its_stages_is_cancelled_at_once() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0), 0)
    scheduler.decide(0)
    scheduler.finish(PREFIX, 10)

    scheduler.cancel(0, 10)

    assert endings(scheduler) == [(10, 0, Phase.CANCELLED)]
    assert started(scheduler, 10) == []


def test_cancelling_what_has_ended_or_never_was_changes_nothing() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0), 0)
    scheduler.cancel(0, 1)
    scheduler.take_events()

    scheduler.cancel(0, 2)
    scheduler.cancel(7, 2)

    assert scheduler.take_events() == [Cancel(2, 0), Cancel(2, 7)]


# Failing


@pytest.mark.parametrize("stage", list(Stage))
def test_a_row_that_fails_leaves_its_batch_mates_alone(stage: Stage) -> None:
    scheduler = scheduler_of(model_of(prefix=(3,), denoise=(3,)))
    for seq in range(3):
        scheduler.submit(request_of(seq), 0)
    now = 0
    for lane in (PREFIX, DENOISE):
        scheduler.decide(now)
        now += 10
        scheduler.finish(lane, now, failed=[1] if lane.stage is stage else [])

    failed_at = 10 if stage is Stage.PREFIX else 20
    assert sorted(endings(scheduler)) == sorted(
        [(20, 0, Phase.SERVED), (failed_at, 1, Phase.FAILED), (20, 2, Phase.SERVED)],
    )


def test_a_row_of_a_single_pass_model_may_fail() -> None:
    scheduler = scheduler_of(model_of("act", denoise=()))
    scheduler.submit(request_of(0, "act"), 0)
    scheduler.decide(0)

    scheduler.finish(PREFIX, 10, failed=[0])

    assert endings(scheduler) == [(10, 0, Phase.FAILED)]


# Misuse


def test_a_model_that_is_not_loaded_is_refused_with_those_that_are() -> None:
    scheduler = one_at_a_time("pi0", "act")

    with pytest.raises(UsageError, match="no model 'pi9' on this device; it serves: act, pi0"):
        scheduler.submit(request_of(0, "pi9"), 0)


@pytest.mark.parametrize("layout", [-1, 2])
def test_a_layout_that_is_not_captured_is_refused_with_those_that_are(layout: int) -> None:
    scheduler = scheduler_of(model_of(holds=(0b11, 0b10)))

    with pytest.raises(UsageError, match=f"model 'pi0' has layouts 0 to 1, got {layout}"):
        scheduler.submit(request_of(0, layout=layout), 0)


@pytest.mark.parametrize("seq", [5, 4])
def test_a_number_that_does_not_rise_is_refused(seq: int) -> None:
    scheduler = scheduler_of()
    scheduler.submit(request_of(5), 0)

    with pytest.raises(UsageError, match=f"request numbers must rise, got {seq} after 5"):
        scheduler.submit(request_of(seq), 0)


def test_a_refused_submission_leaves_no_trace() -> None:
    scheduler = scheduler_of()

    with pytest.raises(UsageError):
        scheduler.submit(request_of(9, "pi9"), 50)

    assert scheduler.take_events() == []
    assert scheduler.unfinished == 0
    scheduler.submit(request_of(0), 10)  # neither its number nor its instant counts


@pytest.mark.parametrize("call", ["submit", "cancel", "finish", "decide"])
def test_no_call_may_go_back_in_time(call: str) -> None:
    scheduler = scheduler_of()
    scheduler.submit(request_of(0), 10)
    scheduler.decide(10)

    with pytest.raises(InvariantError, match="time went back from 10 to 9"):
        {
            "submit": lambda: scheduler.submit(request_of(1), 9),
            "cancel": lambda: scheduler.cancel(0, 9),
            "finish": lambda: scheduler.finish(PREFIX, 9),
            "decide": lambda: scheduler.decide(9),
        }[call]()


def test_a_lane_that_runs_nothing_cannot_finish() -> None:
    scheduler = scheduler_of()
    scheduler.submit(request_of(0), 0)
    scheduler.decide(0)

    with pytest.raises(InvariantError, match="which runs none"):
        scheduler.finish(DENOISE, 10)


def test_dues_far_ahead_of_requests_that_have_ended_take_no_memory() -> None:
    scheduler = scheduler_of()
    day = 10**14
    for seq in range(2_000):
        scheduler.submit(request_of(seq, due=day, expires=2 * day), seq)
        scheduler.cancel(seq, seq)

    assert len(scheduler._yields) < 1_000
    assert len(scheduler._expiries) < 1_000
    assert scheduler.decide(2_000).wake_at is None
