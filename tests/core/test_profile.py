"""The cost model loses no work, however launches come and go, and refuses impossible profiles."""

import json
import re
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.core.profile import FULL_SPEED, CoRun, Profile, Work
from takt.core.request import Stage
from takt.errors import ConfigError, InvariantError

LANES = (Stage.PREFIX, Stage.DENOISE)
FACTORS = st.floats(1, 50)


def work_of(stage: Stage, share: int = 4) -> Work:
    return Work("pi0", stage, layout=0, size=1, share=share)


P, D = work_of(Stage.PREFIX), work_of(Stage.DENOISE)
P1, P2 = work_of(Stage.PREFIX, 1), work_of(Stage.PREFIX, 2)


def profile_of(
    prefix: int = 100, denoise: int = 60, slow: tuple[float, float] = (1.25, 2.0)
) -> Profile:
    """A prefix and a denoise launch, and the slowdown of either beside the other."""
    return Profile(
        units=4,
        shares=(4,),
        solo={P: prefix, D: denoise},
        slowdown={(P, D): slow[0], (D, P): slow[1]},
    )


@st.composite
def profiles(draw: st.DrawFn, most: int = 10**9) -> Profile:
    """A device with a few shares, times and slowdowns without any order."""
    shares = sorted(draw(st.sets(st.integers(1, 7), max_size=4)) | {8})
    prefixes = [work_of(Stage.PREFIX, share) for share in shares]
    denoise = work_of(Stage.DENOISE, 8)
    works = [*prefixes, denoise]
    pairs = [pair for pair in product(works, works) if pair[0].stage is not pair[1].stage]
    return Profile(
        units=8,
        shares=shares,
        solo={work: draw(st.integers(1, most)) for work in works},
        slowdown={pair: draw(FACTORS) for pair in pairs},
    )


# Work is conserved


@dataclass
class Ledger:
    """Adds up elapsed time times speed of each running launch, apart from the class under test."""

    profile: Profile
    run: CoRun[Stage]
    now: int = 0
    owed: dict[Stage, int] = field(default_factory=dict[Stage, int])
    done: dict[Stage, int] = field(default_factory=dict[Stage, int])

    def speed(self, stage: Stage) -> int:
        works = {Stage.PREFIX: P, Stage.DENOISE: D}
        other = Stage.DENOISE if stage is Stage.PREFIX else Stage.PREFIX
        if other not in self.owed:
            return FULL_SPEED
        return self.profile.speed(works[stage], works[other])

    def pass_until(self, now: int) -> None:
        for stage in self.owed:
            self.done[stage] += (now - self.now) * self.speed(stage)
        self.now = now

    def start(self, stage: Stage, solo: int) -> None:
        self.run.start(stage, P if stage is Stage.PREFIX else D, self.now, solo=solo)
        self.owed[stage], self.done[stage] = solo * FULL_SPEED, 0

    def end_next(self) -> None:
        """Let the next launch end and settle its account: what was owed was done, to the ns."""
        end = self.run.next_end()
        assert end is not None
        instant, stage = end
        assert instant >= self.now
        speed = self.speed(stage)
        self.pass_until(instant)
        assert 0 <= self.done[stage] - self.owed[stage] < speed
        self.take_off(stage)

    def take_off(self, stage: Stage) -> None:
        self.run.finish(stage, self.now)
        del self.owed[stage]


@given(
    slow=st.tuples(FACTORS, FACTORS),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("start"), st.sampled_from(LANES), st.integers(1, 10**9)),
            st.tuples(st.just("break off"), st.sampled_from(LANES), st.just(0)),
            st.tuples(st.just("pass"), st.just(Stage.PREFIX), st.integers(0, 10**8)),
        ),
        max_size=30,
    ),
)
def test_work_done_equals_work_owed_whatever_starts_and_ends_between(
    slow: tuple[float, float], steps: list[tuple[str, Stage, int]]
) -> None:
    profile = profile_of(slow=slow)
    ledger = Ledger(profile, CoRun(profile))
    for step, stage, number in steps:
        if step == "start" and stage not in ledger.owed:
            ledger.start(stage, number)
        elif step == "break off" and stage in ledger.owed:
            ledger.take_off(stage)
        elif step == "pass":
            until = ledger.now + number
            while (end := ledger.run.next_end()) is not None and end[0] <= until:
                ledger.end_next()
            ledger.pass_until(until)
    while ledger.owed:
        ledger.end_next()

    assert not ledger.run
    assert ledger.run.next_end() is None


@given(solo=st.integers(1, 10**12), start=st.integers(0, 10**15))
def test_a_launch_that_runs_alone_takes_exactly_its_time(solo: int, start: int) -> None:
    run: CoRun[str] = CoRun(profile_of())

    run.start("lane", P, start, solo=solo)

    assert run.next_end() == (start + solo, "lane")


def test_without_an_override_a_launch_takes_its_profiled_time() -> None:
    run: CoRun[str] = CoRun(profile_of(prefix=100))

    run.start("lane", P, 7)

    assert run.next_end() == (107, "lane")


def test_a_co_runner_that_starts_later_moves_an_end_and_its_own_end_moves_it_back() -> None:
    run: CoRun[str] = CoRun(profile_of(prefix=100, denoise=60, slow=(1.25, 2.0)))

    run.start("prefix", P, 0)
    assert run.next_end() == (100, "prefix")
    run.start("denoise", D, 50)  # 50 of 100 are left, at 4/5 of the speed
    assert run.next_end() == (113, "prefix")  # 112.5: an end is the first instant after all work
    run.finish("denoise", 60)  # 42 are left, at full speed again
    assert run.next_end() == (102, "prefix")


def test_of_ends_at_one_instant_the_launch_that_started_first_comes_first() -> None:
    run: CoRun[str] = CoRun(profile_of(slow=(1.0, 1.0)))

    run.start("second lane", D, 0, solo=30)
    run.start("first lane", P, 10, solo=20)

    assert run.next_end() == (30, "second lane")


def test_a_launch_whose_end_is_overdue_ends_now() -> None:
    run: CoRun[str] = CoRun(profile_of(slow=(1.0, 1.0)))
    run.start("lane", P, 0, solo=10)

    run.start("other", D, 25, solo=10)

    assert run.next_end() == (25, "lane")


def test_a_lane_that_runs_a_launch_takes_no_other() -> None:
    run: CoRun[str] = CoRun(profile_of())
    run.start("lane", P, 0)

    with pytest.raises(InvariantError, match="lane 'lane' was given a launch while it runs one"):
        run.start("lane", D, 1)

    assert len(run) == 1
    assert run.next_end() == (100, "lane")


def test_time_that_goes_back_is_refused() -> None:
    run: CoRun[str] = CoRun(profile_of())
    run.start("lane", P, 10)

    with pytest.raises(InvariantError, match="time went back by 3 ns"):
        run.finish("lane", 7)


@given(
    times=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)),
    slow=st.tuples(FACTORS, FACTORS),
    more=st.tuples(FACTORS, FACTORS),
)
def test_a_worse_slowdown_never_ends_a_pair_earlier(
    times: tuple[int, int], slow: tuple[float, float], more: tuple[float, float]
) -> None:
    worse = max(slow[0], more[0]), max(slow[1], more[1])

    mild = profile_of(*times, slow=slow).pair_ends(P, D)
    harsh = profile_of(*times, slow=worse).pair_ends(P, D)

    assert harsh[0] >= mild[0]
    assert harsh[1] >= mild[1]


@given(
    times=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), slow=st.tuples(FACTORS, FACTORS)
)
def test_a_pair_takes_longer_than_either_alone_and_less_than_the_slowest_case(
    times: tuple[int, int], slow: tuple[float, float]
) -> None:
    ends = profile_of(*times, slow=slow).pair_ends(P, D)

    for end, time, factor in zip(ends, times, slow, strict=True):
        # A speed is a whole number of parts per million, so a slowdown is a little coarse.
        assert time <= end <= time * FULL_SPEED // round(FULL_SPEED / factor) + 1


def test_a_pair_is_calculated_by_hand() -> None:
    profile = profile_of(prefix=100, denoise=60, slow=(1.25, 2.0))

    # The denoise launch runs at half speed until 120; by then 96 of the prefix are done.
    assert profile.pair_ends(P, D) == (124, 120)
    assert profile.pair_ends(D, P) == (120, 124)
    assert profile.pair_time(P, D) == 124


# Shares


@given(profiles(most=1_000))
def test_no_other_share_ends_the_pair_earlier_and_no_larger_one_as_early(profile: Profile) -> None:
    denoise = work_of(Stage.DENOISE, 8)
    prefixes = {share: work_of(Stage.PREFIX, share) for share in profile.shares}
    times = {share: profile.pair_time(prefixes[share], denoise) for share in profile.shares}

    best = profile.best_share(prefixes[8], denoise)

    assert times[best] == min(times.values())
    assert all(times[share] > times[best] for share in profile.shares if share > best)


def test_of_equal_shares_the_largest_wins() -> None:
    works = [P1, P2, P, D]
    profile = Profile(
        units=4,
        shares=(1, 2, 4),
        solo={P1: 10, P2: 10, P: 30, D: 20},
        slowdown=dict.fromkeys(product(works, works), 1.0),
    )

    assert profile.best_share(P, D) == 2


def test_the_best_share_does_not_depend_on_the_share_asked_with() -> None:
    works = [P1, P2, P, D]
    profile = Profile(
        units=4,
        shares=(1, 2, 4),
        solo={P1: 30, P2: 5, P: 20, D: 6},
        slowdown=dict.fromkeys(product(works, works), 1.0),
    )

    assert [profile.best_share(prefix, D) for prefix in (P1, P2, P)] == [2, 2, 2]


# Files


@given(profiles())
def test_a_profile_survives_the_way_through_json(profile: Profile) -> None:
    text = json.dumps(profile.to_json())

    read = Profile.from_json(json.loads(text))

    assert json.dumps(read.to_json()) == text
    assert (read.units, read.shares) == (profile.units, profile.shares)
    denoise = work_of(Stage.DENOISE, 8)
    for share in profile.shares:
        prefix = work_of(Stage.PREFIX, share)
        assert read.solo(prefix) == profile.solo(prefix)
        assert read.speed(prefix, denoise) == profile.speed(prefix, denoise)
        assert read.pair_ends(prefix, denoise) == profile.pair_ends(prefix, denoise)


GOOD = {"units": 4, "shares": [4], "solo": [["pi0", 0, 0, 1, 4, 10]], "speed": []}


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        GOOD | {"solo": [["pi0", 0, 0, 1]]},
        GOOD | {"solo": [["pi0", 9, 0, 1, 4, 10]]},
        GOOD | {"solo": 3},
        GOOD | {"shares": ["4"]},
        GOOD | {"speed": [[0, 5, 100]]},
        GOOD | {"speed": [[0, 0]]},
    ],
)
def test_what_is_no_profile_is_refused(data: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match="not a profile"):
        Profile.from_json(data)


@pytest.mark.parametrize("speed", [0, FULL_SPEED + 1])
def test_an_impossible_speed_in_a_file_names_both_launches(speed: int) -> None:
    message = f"share 4 beside pi0 prefix .*: speed must be from 1 to 1000000 .*, got {speed}"

    with pytest.raises(ConfigError, match=message):
        Profile.from_json(GOOD | {"speed": [[0, 0, speed]]})


# Refusals


def test_a_missing_time_is_named() -> None:
    with pytest.raises(
        ConfigError,
        match="the profile has no time for pi0 prefix layout 0 size 1 share 2",
    ):
        profile_of().solo(P2)


def test_a_missing_slowdown_names_both_launches() -> None:
    with pytest.raises(
        ConfigError,
        match="no slowdown for pi0 prefix layout 0 size 1 share 4 beside pi0 prefix layout 0",
    ):
        profile_of().speed(P, P)


@pytest.mark.parametrize("time", [0, -1])
def test_an_impossible_time_names_the_launch(time: int) -> None:
    message = f"pi0 prefix layout 0 size 1 share 4: its time must be positive, got {time} ns"

    with pytest.raises(ConfigError, match=message):
        profile_of(prefix=time)


@pytest.mark.parametrize("factor", [0.99, 0.0, -1.0, float("inf"), float("nan"), 1e9])
def test_an_impossible_slowdown_names_both_launches_and_the_factor(factor: float) -> None:
    message = (
        "pi0 prefix layout 0 size 1 share 4 beside pi0 denoise layout 0 size 1 share 4:"
        f" slowdown must be from 1 to 1000000, got {factor}"
    )

    with pytest.raises(ConfigError, match=re.escape(message)):
        profile_of(slow=(factor, 1.0))


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ((), r"shares must rise from 1, got \[\]"),
        ((0, 4), r"shares must rise from 1, got \[0, 4\]"),
        ((2, 2, 4), r"shares must rise from 1, got \[2, 2, 4\]"),
        ((4, 2), r"shares must rise from 1, got \[4, 2\]"),
        ((1, 2), "the last share must be the whole device, 4 units"),
        ((4, 8), "the last share must be the whole device, 4 units"),
    ],
)
def test_impossible_shares_are_refused(shares: tuple[int, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Profile(units=4, shares=shares, solo={}, slowdown={})
