"""Replicas of the monolithic pipeline share queues and nothing else."""

from itertools import product

import pytest
from tests.core.driving import SHARES, Driver, model_of, request_of, works_of

from takt.core.formations.monolithic import Monolithic
from takt.core.profile import Profile
from takt.core.request import Stage
from takt.core.trace import Setup
from takt.errors import ConfigError

MODEL = model_of("pi0", prefix=(1,), denoise=(1,))


def profile() -> Profile:
    """Prefix 10, denoise 20 on either share; two replicas run at 4/5 of their speed."""
    works = list(works_of(MODEL))
    return Profile(
        units=4,
        shares=SHARES,
        solo={work: 8 if work.stage is Stage.PREFIX else 16 for work in works},
        slowdown=dict.fromkeys(product(works, works), 1.25),
    )


def driven(replicas: int, count: int) -> Driver:
    setup = Setup(
        models=(MODEL,),
        profile=profile(),
        formation="monolithic",
        options={"replicas": replicas},
    )
    driver = Driver(setup)
    driver.run([request_of(seq) for seq in range(count)])
    return driver


def test_two_replicas_serve_two_requests_side_by_side_on_half_the_device_each() -> None:
    schedule = driven(2, 2).schedule

    assert [(run.start, run.end, run.stage, run.requests, run.share) for run in schedule] == [
        (0, 10, "prefix", (0,), 2),
        (0, 10, "prefix", (1,), 2),
        (10, 30, "denoise", (0,), 2),
        (10, 30, "denoise", (1,), 2),
    ]


def test_a_request_is_denoised_where_its_prefix_ran() -> None:
    driver = driven(2, 5)

    device = {
        (stage, seq): launch.lane.device
        for event in driver.events
        for launch in getattr(event, "launches", ())
        for stage in [launch.lane.stage]
        for seq in launch.requests
    }
    assert all(device[Stage.PREFIX, seq] == device[Stage.DENOISE, seq] for seq in range(5))
    assert {device[Stage.PREFIX, seq] for seq in range(5)} == {0, 1}


def test_expected_times_reckon_with_the_other_replicas() -> None:
    assert Monolithic(2).expected(profile(), MODEL, 0) == (10, 20)
    assert Monolithic().expected(profile(), MODEL, 0) == (8, 16)


def test_more_replicas_than_the_smallest_share_allows_are_refused() -> None:
    with pytest.raises(ConfigError, match="no share of which 3 fit"):
        driven(3, 1)


def test_no_replica_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="replicas must be at least 1, got 0"):
        Monolithic(0)
