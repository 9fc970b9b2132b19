"""Both lanes start together, with the share of their pair; a schedule by hand says when."""

from tests.core.driving import (
    DENOISE,
    PREFIX,
    Run,
    model_of,
    profile_of,
    request_of,
    scheduler_of,
)
from tests.core.formations.dozen import OX, PI, driven, profile

from takt.core.events import Ended
from takt.core.formations.lockstep import Lockstep
from takt.core.request import Phase

BY_HAND = [
    # start, end, stage, model, requests, size, share
    Run(0, 6, "prefix", "ox", (2,), 1, 4),  # heads: ox 50, pi 90; no denoise launch beside it
    # Held to 2 units, 8 * 5/4 on both sides: over at 16. On 4 units: 6, then 8 - 3 left: at 17.
    Run(6, 16, "prefix", "ox", (4,), 1, 2),
    Run(6, 16, "denoise", "ox", (2,), 1, 4),
    # On 4 units: 16, and 8 * 2 beside it. Held to 2 units it would take 8 * 5/4 and 12 more.
    Run(16, 32, "prefix", "pi", (1, 0), 2, 4),
    Run(16, 32, "denoise", "ox", (4,), 1, 4),
    # Held to 2 units: 12 * 5/4 = 15; by then 12 of 22 are done, 10 are left: over at 57, not 59.
    Run(32, 47, "prefix", "ox", (5, 7), 2, 2),  # heads: ox 60, pi 95
    Run(32, 57, "denoise", "pi", (1, 0), 2, 4),
    # On 4 units: 16; by then 8 of 10 are done: over at 75, not 80. Request 3 has just not yielded.
    Run(57, 73, "prefix", "pi", (6, 3), 2, 4),
    Run(57, 75, "denoise", "ox", (5, 7), 2, 4),
    # Held to 2 units: 20 * 5/4 = 25, by then 20 of 22 are done: over at 102, not 105.
    Run(75, 100, "prefix", "pi", (9, 8), 2, 2),
    Run(75, 102, "denoise", "pi", (6, 3), 2, 4),
    Run(102, 124, "denoise", "pi", (9, 8), 2, 4),
    Run(130, 136, "prefix", "ox", (10,), 1, 4),
    Run(136, 144, "denoise", "ox", (10,), 1, 4),
    Run(144, 150, "prefix", "ox", (11,), 1, 4),  # started just before it expires, in vain
]


def test_a_dozen_requests_run_as_calculated_by_hand() -> None:
    driver = driven("lockstep")

    assert driver.schedule == sorted(BY_HAND)
    ended = [event for event in driver.events if isinstance(event, Ended)]
    assert len(ended) == 12
    assert ended[-1] == Ended(150, 11, Phase.EXPIRED)
    assert {event.phase for event in ended[:-1]} == {Phase.SERVED}


def test_the_next_pair_waits_until_both_launches_have_ended() -> None:
    scheduler = scheduler_of(formation="lockstep")
    scheduler.submit(request_of(0), 0)
    scheduler.decide(0)
    scheduler.finish(PREFIX, 10)
    scheduler.submit(request_of(1), 10)
    pair = scheduler.decide(10).launches
    scheduler.submit(request_of(2), 11)
    scheduler.finish(PREFIX, 20)

    assert [launch.lane for launch in pair] == [PREFIX, DENOISE]
    assert scheduler.decide(20).launches == ()
    scheduler.finish(DENOISE, 30)
    assert [launch.requests for launch in scheduler.decide(30).launches] == [(2,), (1,)]


def test_a_launch_without_a_partner_gets_the_whole_device() -> None:
    scheduler = scheduler_of(PI, OX, profile=profile(), formation="lockstep")
    scheduler.submit(request_of(0, "ox"), 0)
    (prefix,) = scheduler.decide(0).launches
    scheduler.finish(PREFIX, 6)
    (denoise,) = scheduler.decide(6).launches

    assert (prefix.share, denoise.share) == (4, 4)


def test_each_lane_may_serve_another_model() -> None:
    scheduler = scheduler_of(PI, OX, profile=profile(), formation="lockstep")
    scheduler.submit(request_of(0, "ox"), 0)
    scheduler.decide(0)
    scheduler.submit(request_of(1, "pi"), 6)
    scheduler.finish(PREFIX, 6)

    launches = scheduler.decide(6).launches

    assert [(launch.model, launch.lane) for launch in launches] == [("pi", PREFIX), ("ox", DENOISE)]


def test_expected_reckons_with_a_full_partner_on_the_other_lane() -> None:
    # pi: held to 2 units the prefix takes 25; then 5 of the 25 of a denoise launch are left.
    assert Lockstep().expected(profile(), PI, 0) == (30, 30)
    # ox: 15 either way, so on 4 units: the prefix takes 10, the denoise launch 10 more than 5.
    assert Lockstep().expected(profile(), OX, 0) == (15, 15)


def test_a_request_ahead_of_a_long_partner_waits_for_it() -> None:
    quick = model_of("quick", prefix=(1,), denoise=(1,))

    expected = Lockstep().expected(profile_of(quick, prefix=10, denoise=50), quick, 0)

    assert expected == (50, 50)


def test_a_single_pass_model_expects_nothing_of_the_denoise_lane() -> None:
    act = model_of("act", denoise=())

    assert Lockstep().expected(profile_of(act), act, 0) == (10, 0)
