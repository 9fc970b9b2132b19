"""Ten thousand requests with kills, supersedes and refusals replay byte for byte."""

import json
import random
from collections import Counter

import pytest
from tests.twin.storms import Storm
from tests.twin.test_twin import LOCKSTEP
from tests.twin.twins import Arrival, Happenings, simulated, worked

from takt.core.request import Stage
from takt.core.trace import replay
from takt.errors import TaktError
from takt.runtime.trace_file import split_traces

NUM_REQUESTS = 10_000

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def storm() -> Storm:
    return Storm(seed=11, num_requests=NUM_REQUESTS * 4 // 3)  # some never reach the scheduler


@pytest.fixture(scope="module")
def traces(storm: Storm) -> list[list[str]]:
    return list(split_traces(f"{line}\n" for line in storm.trace))


def test_everything_that_happens_to_a_worker_has_happened(
    storm: Storm, traces: list[list[str]]
) -> None:
    ended = Counter(json.loads(line)["phase"] for line in storm.trace if '"event":"ended"' in line)
    submitted = sum('"event":"submit"' in line for line in storm.trace)

    assert submitted >= NUM_REQUESTS
    assert set(ended) == {"served", "failed", "expired", "superseded", "cancelled"}
    assert min(ended.values()) > 100
    assert storm.outcomes["busy"] > 20
    assert storm.outcomes["unknown_model"] > 20
    assert min(storm.happened[what] for what in ("workers_killed", "gateways_lost", "setups")) > 5
    assert len(traces) > storm.happened["workers_killed"]


def test_the_whole_trace_replays_byte_for_byte(traces: list[list[str]]) -> None:
    for trace in traces:
        assert list(replay(trace)) == trace


def test_an_event_out_of_order_is_found_wherever_it_is(traces: list[list[str]]) -> None:
    draw = random.Random(3)
    longest = sorted(traces, key=len)[-10:]
    unnoticed: list[tuple[str, str]] = []

    for _ in range(60):
        trace = draw.choice(longest)
        submits = [place for place, line in enumerate(trace) if '"event":"submit"' in line]
        which = draw.randrange(len(submits) - 1)
        first, second = submits[which : which + 2]
        disturbed = [*trace]
        disturbed[first], disturbed[second] = trace[second], trace[first]
        if replays(disturbed):
            unnoticed.append((trace[first], trace[second]))

    assert unnoticed == []


def replays(trace: list[str]) -> bool:
    try:
        return list(replay(trace)) == trace
    except TaktError:
        return False


def test_both_drivers_take_the_same_decisions_ten_thousand_times() -> None:
    draw = random.Random(7)
    now, arrivals = 0, []
    for _ in range(NUM_REQUESTS):
        now += draw.choice([0, 1, 2, 3, 5, 8])
        arrivals.append(
            Arrival(
                at=now,
                model=draw.choice(["pi0", "pi0", "act"]),
                session=f"robot {draw.randrange(20)}",
                due_in=draw.randrange(-30, 120),
                promise_in=draw.randrange(100),
                expires_in=draw.randrange(150),
                supersede=draw.random() < 0.8,
            )
        )
    happenings = Happenings(
        arrivals=arrivals,
        cancels={seq: arrivals[seq - 1].at + draw.randrange(60) for seq in range(1, 10_000, 9)},
        failing={seq: draw.choice([*Stage]) for seq in range(1, 10_000, 31)},
    )

    assert worked(LOCKSTEP, happenings) == simulated(LOCKSTEP, happenings)
