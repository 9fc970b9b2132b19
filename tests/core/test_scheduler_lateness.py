"""Time runs out for a request in two steps: it yields once it is hopeless, and then it expires."""

from tests.core.driving import DENOISE, PREFIX, endings, model_of, request_of, scheduler_of

from takt.core.request import Phase
from takt.core.scheduler import Lateness, Scheduler


def started(scheduler: Scheduler, now: int) -> list[tuple[int, ...]]:
    """The rows of each launch that is started now."""
    return [launch.requests for launch in scheduler.decide(now).launches]


def one_at_a_time(*names: str, slo: int = 100, lateness: Lateness = Lateness.YIELD) -> Scheduler:
    """A scheduler of models without batches: 10 for a prefix, 20 for a denoise launch."""
    models = [model_of(name, slo=slo, prefix=(1,), denoise=(1,)) for name in names]
    return scheduler_of(*models, lateness=lateness)


# Expiring


def test_a_request_starts_until_the_last_instant_before_it_expires() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0, expires=50), 0)

    assert started(scheduler, 49) == [(0,)]


def test_a_request_is_refused_at_the_instant_it_expires() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0, expires=50), 0)

    assert started(scheduler, 50) == []
    assert endings(scheduler) == [(50, 0, Phase.EXPIRED)]


def test_a_request_that_arrives_expired_is_refused_at_once() -> None:
    scheduler = one_at_a_time("pi0")

    scheduler.submit(request_of(0, expires=50), 50)

    assert endings(scheduler) == [(50, 0, Phase.EXPIRED)]


def test_an_expired_observation_supersedes_all_the_same() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0, session="arm"), 0)

    scheduler.submit(request_of(1, session="arm", expires=10), 10)

    assert endings(scheduler) == [(10, 0, Phase.SUPERSEDED), (10, 1, Phase.EXPIRED)]


def test_a_request_whose_prefix_ends_when_it_expires_is_refused_between_the_stages() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0, expires=10), 0)
    scheduler.decide(0)

    scheduler.finish(PREFIX, 10)

    assert endings(scheduler) == [(10, 0, Phase.EXPIRED)]


def test_a_request_that_waits_between_its_stages_expires_there() -> None:
    scheduler = scheduler_of(model_of(prefix=(1,), denoise=(1,)), formation="lockstep")
    scheduler.submit(request_of(0, due=50, expires=60), 0)
    scheduler.submit(request_of(1, due=40), 0)
    assert started(scheduler, 0) == [(1,)]
    scheduler.finish(PREFIX, 10)
    assert started(scheduler, 10) == [(0,), (1,)]
    scheduler.finish(PREFIX, 20)  # the denoise launch of request 1 is slow

    assert scheduler.decide(59).wake_at == 60
    scheduler.decide(60)

    assert endings(scheduler) == [(60, 0, Phase.EXPIRED)]


def test_a_request_is_answered_though_it_expires_while_it_is_denoised() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0, expires=25), 0)
    scheduler.decide(0)
    scheduler.finish(PREFIX, 10)
    scheduler.decide(10)

    assert scheduler.decide(26) == ((), None)
    scheduler.finish(DENOISE, 30)

    assert endings(scheduler) == [(30, 0, Phase.SERVED)]


# Waking


def test_the_scheduler_asks_to_be_woken_when_the_next_waiting_request_expires() -> None:
    scheduler = one_at_a_time("pi0")
    for seq, expires in enumerate((900, 500, 700, 600)):
        scheduler.submit(request_of(seq, due=seq, promise=800, expires=expires), 0)

    assert scheduler.decide(0).wake_at == 500  # request 0 runs
    scheduler.cancel(1, 1)
    assert scheduler.decide(1).wake_at == 600
    assert scheduler.decide(600).wake_at == 700


def test_the_scheduler_need_not_be_woken_when_nobody_waits() -> None:
    scheduler = one_at_a_time("pi0")
    assert scheduler.decide(0).wake_at is None

    scheduler.submit(request_of(0), 0)

    assert scheduler.decide(0).wake_at is None


# Yielding


def test_a_request_yields_from_the_first_instant_at_which_it_would_be_late() -> None:
    def first_started_at(now: int) -> list[tuple[int, ...]]:
        scheduler = one_at_a_time("late", "early")
        scheduler.submit(request_of(0, "late", due=0, promise=100), 0)  # needs 30: until 70
        scheduler.submit(request_of(1, "early", due=500), 0)
        return started(scheduler, now)

    assert first_started_at(70) == [(0,)]
    assert first_started_at(71) == [(1,)]


def test_a_request_is_late_only_when_due_and_promise_are_both_missed() -> None:
    def first_started(due: int, promise: int) -> list[tuple[int, ...]]:
        scheduler = one_at_a_time("late", "early")
        scheduler.submit(request_of(0, "late", due=due, promise=promise), 0)
        scheduler.submit(request_of(1, "early", due=500), 0)
        return started(scheduler, 90)

    assert first_started(due=120, promise=50) == [(0,)]
    assert first_started(due=50, promise=120) == [(0,)]
    assert first_started(due=119, promise=119) == [(1,)]


def test_between_the_stages_only_the_denoise_launch_is_still_needed() -> None:
    def first_denoised_at(now: int) -> list[tuple[int, ...]]:
        scheduler = scheduler_of(model_of(prefix=(2,), denoise=(1,)))
        scheduler.submit(request_of(0, due=0, promise=45), 0)  # needs 20 then: until 25
        scheduler.submit(request_of(1, due=500), 0)
        assert started(scheduler, 0) == [(0, 1)]
        scheduler.finish(PREFIX, now)
        return started(scheduler, now)

    assert first_denoised_at(25) == [(0,)]
    assert first_denoised_at(26) == [(1,)]


def test_a_request_that_yielded_one_slo_regains_its_order() -> None:
    def first_started_at(now: int) -> list[tuple[int, ...]]:
        scheduler = one_at_a_time("late", "early")
        scheduler.submit(request_of(0, "late", due=0, promise=100), 0)  # yields from 71 on
        scheduler.submit(request_of(1, "early", due=500), 0)
        scheduler.submit(request_of(2, "early", due=600), 0)
        return started(scheduler, now)

    assert first_started_at(170) == [(1,)]
    assert first_started_at(171) == [(0,)]


def test_a_request_whose_answer_would_come_too_late_does_not_regain_its_order() -> None:
    def first_started(expires: int) -> list[tuple[int, ...]]:
        scheduler = one_at_a_time("late", "early")
        scheduler.submit(request_of(0, "late", due=0, promise=100, expires=expires), 0)
        scheduler.submit(request_of(1, "early", due=500), 0)
        return started(scheduler, 171)

    assert first_started(expires=202) == [(0,)]  # an answer at 201 is worth something
    assert first_started(expires=201) == [(1,)]


def test_a_request_that_arrives_too_late_yields_at_once_and_for_one_slo() -> None:
    def first_started_at(now: int) -> list[tuple[int, ...]]:
        scheduler = one_at_a_time("late", "early")
        scheduler.submit(request_of(0, "late", due=0), 40)
        scheduler.submit(request_of(1, "early", due=500), 40)
        return started(scheduler, now)

    assert first_started_at(40) == [(1,)]
    assert first_started_at(139) == [(1,)]
    assert first_started_at(140) == [(0,)]


def test_the_slo_of_its_own_model_says_how_long_a_request_yields() -> None:
    scheduler = scheduler_of(
        model_of("late", slo=7, prefix=(1,), denoise=(1,)), model_of("early", slo=900)
    )
    scheduler.submit(request_of(0, "late", due=0), 0)
    scheduler.submit(request_of(1, "early", due=500), 0)

    assert started(scheduler, 7) == [(0,)]


def test_a_request_may_yield_anew_at_the_instant_it_would_have_regained_its_order() -> None:
    scheduler = one_at_a_time("pi0", slo=100)
    scheduler.submit(request_of(0, due=0), 0)
    scheduler.decide(0)  # it yields from 0 on, and runs as nobody else waits

    scheduler.finish(PREFIX, 100)

    assert started(scheduler, 100) == [(0,)]


def test_nobody_yields_while_nobody_feasible_waits() -> None:
    scheduler = one_at_a_time("pi0")
    scheduler.submit(request_of(0, due=5), 10)
    scheduler.submit(request_of(1, due=3), 10)

    assert started(scheduler, 10) == [(1,)]


def test_a_request_that_yields_can_be_cancelled_superseded_and_expired() -> None:
    scheduler = one_at_a_time("late", "early")
    scheduler.submit(request_of(0, "late", due=0), 0)
    scheduler.submit(request_of(1, "late", due=0, session="arm"), 0)
    scheduler.submit(request_of(2, "late", due=0, expires=9), 0)
    scheduler.submit(request_of(3, "early", due=500), 0)
    scheduler.decide(0)

    scheduler.cancel(0, 1)
    scheduler.submit(request_of(4, "early", session="arm"), 2)
    scheduler.decide(9)

    assert endings(scheduler) == [
        (1, 0, Phase.CANCELLED),
        (2, 1, Phase.SUPERSEDED),
        (9, 2, Phase.EXPIRED),
    ]


# The other two ways to treat lateness


def test_serve_late_keeps_a_hopeless_request_in_its_order() -> None:
    models = [model_of(name, prefix=(1,), denoise=(1,)) for name in ("late", "early")]
    scheduler = scheduler_of(*models, lateness=Lateness.SERVE_LATE)
    scheduler.submit(request_of(0, "late", due=0), 0)
    scheduler.submit(request_of(1, "early", due=500), 0)

    assert started(scheduler, 50) == [(0,)]


def test_refuse_at_due_refuses_once_both_measures_are_missed() -> None:
    scheduler = one_at_a_time("pi0", lateness=Lateness.REFUSE_AT_DUE)
    scheduler.submit(request_of(0, due=1), 0)
    scheduler.submit(request_of(1, due=20, promise=30, expires=500), 0)
    scheduler.submit(request_of(2, due=25, promise=15, expires=500), 0)

    assert scheduler.decide(0).wake_at == 25  # request 0 runs
    assert scheduler.decide(24).wake_at == 25
    assert scheduler.decide(25).wake_at == 30
    scheduler.decide(30)

    assert endings(scheduler) == [(25, 2, Phase.EXPIRED), (30, 1, Phase.EXPIRED)]


def test_refuse_at_due_never_lengthens_a_life() -> None:
    scheduler = scheduler_of(lateness=Lateness.REFUSE_AT_DUE)
    scheduler.submit(request_of(0, due=90, expires=5), 0)

    scheduler.decide(5)

    assert endings(scheduler) == [(5, 0, Phase.EXPIRED)]
