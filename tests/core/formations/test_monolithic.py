"""One batch at a time goes through both stages; a schedule calculated by hand says when."""

from tests.core.driving import (
    DENOISE,
    PREFIX,
    Run,
    endings,
    model_of,
    profile_of,
    request_of,
    scheduler_of,
)
from tests.core.formations.dozen import OX, PI, driven, profile

from takt.core.events import Ended
from takt.core.formations.monolithic import Monolithic
from takt.core.request import Phase

# A request of pi needs 38 from its prefix on and 22 from its denoise launch on; ox 20 and 10.
BY_HAND = [
    # start, end, stage, model, requests, size, share
    Run(0, 6, "prefix", "ox", (2,), 1, 4),  # heads: ox 50, pi 90
    Run(6, 14, "denoise", "ox", (2,), 1, 4),
    Run(14, 20, "prefix", "ox", (4,), 1, 4),  # heads: ox 40, pi 90
    Run(20, 28, "denoise", "ox", (4,), 1, 4),
    Run(28, 34, "prefix", "ox", (5,), 1, 4),  # heads: ox 60, pi 90
    Run(34, 42, "denoise", "ox", (5,), 1, 4),
    Run(42, 58, "prefix", "pi", (1, 6), 2, 4),  # pi 90, 95, 100, 117; ox 200
    Run(58, 80, "denoise", "pi", (1, 6), 2, 4),
    # Request 0 is hopeless from 63 on: 100 - 38 + 1. Request 3 from 80 on, so at this instant.
    Run(80, 96, "prefix", "pi", (9, 8), 2, 4),  # pi 150, 300; ox 200
    Run(96, 118, "denoise", "pi", (9, 8), 2, 4),
    Run(118, 124, "prefix", "ox", (7,), 1, 4),  # the only feasible one: 0 and 3 yield
    Run(124, 132, "denoise", "ox", (7,), 1, 4),
    Run(132, 138, "prefix", "ox", (10,), 1, 4),  # 0 and 3 still yield
    Run(138, 146, "denoise", "ox", (10,), 1, 4),  # request 11 expires meanwhile
    Run(146, 162, "prefix", "pi", (0, 3), 2, 4),  # nobody feasible waits
    Run(162, 184, "denoise", "pi", (0, 3), 2, 4),
]


def test_a_dozen_requests_run_as_calculated_by_hand() -> None:
    driver = driven("monolithic")

    assert driver.schedule == BY_HAND
    ended = [event for event in driver.events if isinstance(event, Ended)]
    assert ended[-3:] == [
        Ended(146, 10, Phase.SERVED),
        Ended(184, 0, Phase.SERVED),
        Ended(184, 3, Phase.SERVED),
    ]
    assert Ended(145, 11, Phase.EXPIRED) in ended


def test_nothing_starts_while_a_launch_runs() -> None:
    scheduler = scheduler_of(formation="monolithic")
    scheduler.submit(request_of(0), 0)
    scheduler.decide(0)
    scheduler.submit(request_of(1), 1)

    assert scheduler.decide(1).launches == ()


def test_the_second_half_of_a_batch_goes_before_the_next_batch() -> None:
    scheduler = scheduler_of(formation="monolithic")
    scheduler.submit(request_of(0), 0)
    scheduler.decide(0)
    scheduler.submit(request_of(1, due=1), 1)

    scheduler.finish(PREFIX, 10)

    assert [launch.requests for launch in scheduler.decide(10).launches] == [(0,)]


def test_a_batch_keeps_together_in_a_padded_denoise_launch() -> None:
    scheduler = scheduler_of(model_of(prefix=(1, 3), denoise=(1, 4)))
    for seq in range(3):
        scheduler.submit(request_of(seq), 0)
    scheduler.decide(0)
    scheduler.finish(PREFIX, 10)

    (launch,) = scheduler.decide(10).launches

    assert (launch.requests, launch.size) == ((0, 1, 2), 4)


def test_a_batch_that_fits_no_denoise_launch_is_denoised_in_parts() -> None:
    scheduler = scheduler_of(model_of(prefix=(3,), denoise=(1, 2)))
    for seq in range(3):
        scheduler.submit(request_of(seq), 0)
    scheduler.decide(0)
    scheduler.finish(PREFIX, 10)

    first = scheduler.decide(10).launches
    scheduler.finish(DENOISE, 30)
    second = scheduler.decide(30).launches
    scheduler.finish(DENOISE, 50)

    assert [launch.requests for launch in first + second] == [(0, 1), (2,)]
    assert endings(scheduler) == [
        (30, 0, Phase.SERVED),
        (30, 1, Phase.SERVED),
        (50, 2, Phase.SERVED),
    ]


def test_expected_is_a_full_prefix_batch_and_the_denoise_launch_that_holds_it() -> None:
    assert Monolithic().expected(profile(), PI, 0) == (16, 22)  # two rows, though four are captured
    assert Monolithic().expected(profile(), OX, 0) == (10, 10)


def test_a_single_pass_model_expects_nothing_of_the_denoise_lane() -> None:
    act = model_of("act", denoise=())

    assert Monolithic().expected(profile_of(act), act, 0) == (10, 0)
