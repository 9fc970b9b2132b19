"""A launch waits for rows only as long as that makes nobody late, and the cost model is obeyed."""

from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.driving import SHARES, UNITS, Driver, model_of, request_of, works_of

from takt.core.events import Decide, Ended, Event, Finish
from takt.core.gathering import Gathering
from takt.core.launch import Lane
from takt.core.profile import Profile, Work
from takt.core.request import Phase, Request, Stage
from takt.core.trace import Setup
from takt.errors import ConfigError

PI = model_of("pi", slo=150, prefix=(1, 2), denoise=(1, 2, 4, 8))
OX = model_of("ox", slo=100, prefix=(1, 2), denoise=(1, 4))
MODELS = (PI, OX)


def profile() -> Profile:
    """Prefix times rise with the rows, denoise times hardly; side by side both are slower."""
    works = [work for model in MODELS for work in works_of(model)]
    return Profile(
        units=UNITS,
        shares=SHARES,
        solo={
            work: (8 * work.size if work.stage is Stage.PREFIX else 20 + work.size)
            * (3 if work.share < UNITS else 2)
            // 2
            for work in works
        },
        slowdown={
            (work, beside): 1.2 if SHARES[0] in (work.share, beside.share) else 1.7
            for work, beside in product(works, works)
            if work.stage is not beside.stage
        },
    )


PROFILE = profile()

SENT = st.tuples(
    st.sampled_from([PI, PI, PI, OX]),
    st.integers(0, 200),  # arrival
    st.integers(30, 260),  # from arrival to due
)


def driven(formation: str, rows: int, sent: list[tuple[object, int, int]]) -> Driver:
    setup = Setup(models=MODELS, profile=PROFILE, formation=formation, options={"gathering": rows})
    driver = Driver(setup)
    driver.run(requests(sent))
    return driver


def requests(sent: list[tuple[object, int, int]]) -> list[Request]:
    ordered = sorted(sent, key=lambda one: one[1])
    return [
        request_of(seq, model.name, at=at, due=at + left, expires=at + left + 300)  # type: ignore[attr-defined]
        for seq, (model, at, left) in enumerate(ordered)
    ]


def held(events: list[Event], model_of_seq: dict[int, str], due: dict[int, int]) -> set[int]:
    """Requests that were left waiting beside an idle denoise lane, and could have been on time.

    Could: launched at that instant with all who wait for the same model, alone on the device.
    """
    ready: set[int] = set()
    running: dict[Stage, tuple[int, ...]] = {}
    found: set[int] = set()
    for event in events:
        if isinstance(event, Finish):
            rows = running.pop(Stage(event.lane.stage))
            if event.lane.stage is Stage.PREFIX:
                ready |= set(rows)
        elif isinstance(event, Ended):
            ready.discard(event.seq)
        elif isinstance(event, Decide):
            for launch in event.launches:
                running[launch.lane.stage] = launch.requests
                ready -= set(launch.requests)
            was_asked = bool(event.launches) or not running
            if Stage.DENOISE not in running and was_asked:
                found |= {
                    seq
                    for seq in ready
                    if event.at + alone(model_of_seq[seq], len(ready)) <= due[seq]
                }
    return found


def alone(model: str, rows: int) -> int:
    loaded = PI if model == "pi" else OX
    size = loaded.holding_size(Stage.DENOISE, rows)
    return PROFILE.solo(Work(model, Stage.DENOISE, 0, size, UNITS))


@pytest.mark.parametrize("formation", ["lockstep", "flowing"])
@settings(max_examples=150, deadline=None)
@given(rows=st.integers(1, 9), sent=st.lists(SENT, min_size=1, max_size=14))
def test_gathering_makes_nobody_late_whom_the_cost_model_says_would_have_been_on_time(
    formation: str, rows: int, sent: list[tuple[object, int, int]]
) -> None:
    driver = driven(formation, rows, sent)
    asked = {request.seq: request for request in requests(sent)}
    ends = {event.seq: event for event in driver.events if isinstance(event, Ended)}

    waited = held(
        driver.events,
        {seq: request.model for seq, request in asked.items()},
        {seq: request.due for seq, request in asked.items()},
    )

    late = [seq for seq in waited if ends[seq].at > asked[seq].latest]
    assert late == []
    assert all(ends[seq].phase is Phase.SERVED for seq in waited)


@pytest.mark.parametrize("formation", ["lockstep", "flowing"])
def test_a_launch_waits_for_the_rows_of_the_next_prefix(formation: str) -> None:
    """Three robots with time to spare: one denoise launch instead of two."""
    sent: list[tuple[object, int, int]] = [(PI, 0, 250), (PI, 1, 250), (PI, 1, 250)]

    launches = [run for run in driven(formation, 4, sent).schedule if run.stage == "denoise"]

    assert [run.requests for run in launches] == [(0, 1, 2)]


@pytest.mark.parametrize("formation", ["lockstep", "flowing"])
def test_a_launch_does_not_wait_when_that_would_be_too_late(formation: str) -> None:
    sent: list[tuple[object, int, int]] = [(PI, 0, 48), (PI, 1, 250), (PI, 1, 250)]

    launches = [run for run in driven(formation, 4, sent).schedule if run.stage == "denoise"]

    assert launches[0].requests == (0,)


@pytest.mark.parametrize("formation", ["lockstep", "flowing"])
def test_a_launch_with_enough_rows_does_not_wait(formation: str) -> None:
    sent: list[tuple[object, int, int]] = [(PI, 0, 250), (PI, 1, 250), (PI, 1, 250)]

    launches = [run for run in driven(formation, 1, sent).schedule if run.stage == "denoise"]

    assert launches[0].requests == (0,)


def test_a_negative_number_of_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match="gathering must be at least 0 rows, got -1"):
        Gathering(-1)


@pytest.mark.parametrize("formation", ["lockstep", "flowing"])
@pytest.mark.parametrize("seed", range(10))
def test_a_launch_that_overruns_its_forecast_never_makes_the_driver_spin(
    formation: str, seed: int
) -> None:
    setup = Setup(models=(PI,), profile=PROFILE, formation=formation, options={"gathering": 4})
    scheduler, random = setup.scheduler(), Random(seed)
    ends: dict[Lane, int] = {}
    now = 0
    for seq in range(150):
        scheduler.submit(request_of(seq, PI.name, due=now + random.randrange(30, 260)), now)
        decision = scheduler.decide(now)
        assert decision.wake_at is None or decision.wake_at > now
        for launch in decision.launches:
            ends[launch.lane] = now + random.randrange(1, 500)  # the profile says less
        now = min([*ends.values(), now + 40, decision.wake_at or now + 40])
        for lane in [lane for lane, end in ends.items() if end <= now]:
            del ends[lane]
            scheduler.finish(lane, now)
