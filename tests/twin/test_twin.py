"""The shipped worker loop and the simulator's device take the same decisions, byte for byte."""

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.driving import SHARES, UNITS, model_of, works_of
from tests.twin.twins import EPOCH, Arrival, Happenings, simulated, worked

from takt.core.disciplines import DISCIPLINES
from takt.core.events import Submit
from takt.core.model import Model
from takt.core.profile import Profile, Work
from takt.core.request import Stage
from takt.core.scheduler import Lateness
from takt.core.trace import Setup, event_line, replay
from takt.runtime.events import LoopEvent
from takt.runtime.launches import Completed
from takt.runtime.loop import WorkerLoop
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.loop import simulate
from takt.sim.network import LogNormalNetwork
from takt.units import SECOND, ms

MODELS = (
    model_of("pi0", slo=60, prefix=(1, 2, 4), denoise=(1, 4), holds=(0b11, 0b10)),
    model_of("act", slo=40, prefix=(1, 3), denoise=()),
)


def solo(work: Work) -> int:
    """Round numbers, so that ties are common, in which every part of the shape counts."""
    base = 4 if work.stage is Stage.PREFIX else 6
    return base + 2 * work.layout + work.size + (2 if work.share < UNITS else 0)


def device(*models: Model, scale: int = 1) -> Profile:
    works = [work for model in models for work in works_of(model)]
    return Profile(
        units=UNITS,
        shares=SHARES,
        solo={work: solo(work) * scale for work in works},
        slowdown={
            (work, beside): 1.25 if SHARES[0] in (work.share, beside.share) else 1.5
            for work in works
            for beside in works
            if work.stage is not beside.stage
        },
    )


PROFILE = device(*MODELS)
LOCKSTEP = Setup(models=MODELS, profile=PROFILE)

arrivals = st.lists(
    st.builds(
        Arrival,
        at=st.integers(0, 120),
        model=st.sampled_from(["pi0", "pi0", "act"]),
        session=st.sampled_from("abcd"),
        due_in=st.integers(-30, 120),
        promise_in=st.integers(0, 100),
        expires_in=st.integers(0, 150),
        layout=st.just(0),
        supersede=st.booleans(),
    ),
    max_size=40,
).map(lambda arrivals: sorted(arrivals, key=lambda arrival: arrival.at))

happenings = st.builds(
    Happenings,
    arrivals=arrivals,
    cancels=st.dictionaries(st.integers(1, 40), st.integers(0, 200), max_size=8),
    failing=st.dictionaries(st.integers(1, 40), st.sampled_from(Stage), max_size=8),
)

FORMED = [
    Setup(models=MODELS, profile=PROFILE, formation=formation, options=options)
    for formation, options in [
        ("monolithic", {}),
        ("lockstep", {}),
        ("lockstep", {"gathering": 3}),
        ("flowing", {}),
        ("flowing", {"gathering": 3}),
    ]
]

setups = st.builds(
    dataclasses.replace,
    st.sampled_from(FORMED),
    discipline=st.sampled_from(sorted(DISCIPLINES)),
    lateness=st.sampled_from(Lateness),
)


@pytest.mark.slow
@given(setup=setups, happenings=happenings)
def test_both_drivers_take_the_same_decisions(setup: Setup, happenings: Happenings) -> None:
    assert worked(setup, happenings) == simulated(setup, happenings)


@pytest.mark.slow
@given(setup=setups, happenings=happenings)
def test_the_trace_of_the_worker_replays(setup: Setup, happenings: Happenings) -> None:
    trace = worked(setup, happenings)

    assert list(replay(trace)) == trace


def test_a_fleet_that_was_simulated_is_served_the_same_way() -> None:
    models = (model_of("pi0", slo=ms(80)), model_of("act", slo=ms(60), denoise=()))
    setup = Setup(models=models, profile=device(*models, scale=ms(1)))
    fleet = Fleet(
        devices={"gpu": setup},
        robots=(
            RobotGroup(model="pi0", count=8, device="gpu", rate_hz=4.0, supersede=True),
            RobotGroup(model="act", count=6, device="gpu", deadline="queue"),
        ),
        network=LogNormalNetwork(),
    )
    events = simulate(fleet, duration=3 * SECOND, keep_events=True).devices["gpu"].events
    submits = [event for event in events if isinstance(event, Submit)]
    happenings = Happenings(
        arrivals=[
            Arrival(
                at=submit.at,
                model=submit.model,
                session=submit.session,
                due_in=submit.due - submit.at,
                promise_in=submit.promise - submit.at,
                expires_in=submit.expires - submit.at,
                layout=submit.layout,
                supersede=submit.supersede,
            )
            for submit in submits
        ]
    )

    trace = worked(setup, happenings)

    assert trace == simulated(setup, happenings)
    assert len(submits) > 100
    lines = [line.replace(f'"session":"{EPOCH:x}/', '"session":"') for line in trace]
    assert lines[1:] == [event_line(event) for event in events]


# The comparison bites

TIES = Happenings(
    arrivals=[
        Arrival(at=0, session="a"),
        Arrival(at=0, session="b"),
        Arrival(at=12, session="c"),  # the first prefix launch has 2 rows and ends at 6
        Arrival(at=20, session="d"),
    ],
    cancels={4: 20},
)


def test_a_tie_that_nobody_disturbs_is_no_difference() -> None:
    assert worked(LOCKSTEP, TIES) == simulated(LOCKSTEP, TIES)


def reversed_arrivals(events: list[LoopEvent]) -> list[LoopEvent]:
    return events[::-1]


def all_but_the_first(events: list[LoopEvent]) -> list[LoopEvent]:
    return events[1:] if len(events) > 1 else events


@pytest.mark.parametrize("disturb", [reversed_arrivals, all_but_the_first])
def test_a_reordered_or_lost_event_shows(
    disturb: Callable[[list[LoopEvent]], list[LoopEvent]],
) -> None:
    pair = Happenings(arrivals=TIES.arrivals[:2])

    assert worked(LOCKSTEP, pair, disturb=disturb) != simulated(LOCKSTEP, pair)


class CompletionsFirst(WorkerLoop):
    """Takes completions in before the arrivals of the same instant."""

    def step(self, events: list[LoopEvent], now: int) -> object:  # type: ignore[override]
        completed = [event for event in events if isinstance(event, Completed)]
        for event in completed:
            self._complete(event, now)
        return super().step([event for event in events if event not in completed], now)


class DecidesPerEvent(WorkerLoop):
    """Decides before all events of the instant are in."""

    def step(self, events: list[LoopEvent], now: int) -> object:  # type: ignore[override]
        for event in events[:-1]:
            super().step([event], now)
        return super().step(events[-1:], now)


@pytest.mark.parametrize("faulty", [CompletionsFirst, DecidesPerEvent])
def test_another_order_within_an_instant_shows(faulty: type[WorkerLoop]) -> None:
    first_end = solo(Work("pi0", Stage.PREFIX, 0, 1, UNITS))
    tie = Happenings(
        arrivals=[
            Arrival(at=0, session="a"),
            Arrival(at=first_end, session="b"),
            Arrival(at=first_end, session="c"),
        ]
    )

    assert worked(LOCKSTEP, tie) == simulated(LOCKSTEP, tie)
    assert worked(LOCKSTEP, tie, loop_class=faulty) != simulated(LOCKSTEP, tie)
