"""The JSON has the shape that Perfetto reads; looked at in a trace by hand and a simulated one."""

import json
from collections import Counter
from typing import Any

import pytest
from tests.cli.tracing.made import SERVED_AND_SUPERSEDED, decide, setup, simulated, submit

from takt.cli.tracing.perfetto import trace_document
from takt.cli.tracing.reading import read_trace
from takt.cli.tracing.story import stories_of
from takt.core.request import Phase

Event = dict[str, Any]


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    trace = simulated(tmp_path_factory.mktemp("trace"), "--seconds", "3", "--seed", "1")
    return written([*stories_of(read_trace(trace.read_text().splitlines(keepends=True)))])


@pytest.fixture(scope="module")
def by_hand() -> list[Event]:
    """Two setups, under which requests have the same numbers."""
    parts = [setup(), *SERVED_AND_SUPERSEDED]
    return written(stories_of([*parts, setup("flowing"), submit(1, 60), decide(70)]))


@pytest.fixture(params=["simulation", "by_hand"])
def events(request: pytest.FixtureRequest) -> list[Event]:
    return request.getfixturevalue(request.param)


def written(stories: list[Any]) -> list[Event]:
    """The events, once they have been JSON."""
    return json.loads(json.dumps(trace_document(stories)))["traceEvents"]


def of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["ph"] == kind]


def test_time_never_goes_back(events: list[Event]) -> None:
    instants = [event["ts"] for event in events if event["ph"] != "M"]

    assert instants == sorted(instants)
    assert instants[0] >= 0


def test_every_event_belongs_to_a_named_process(events: list[Event]) -> None:
    named = {event["pid"] for event in of(events, "M") if event["name"] == "process_name"}

    assert {event["pid"] for event in events} == named


def test_slices_of_a_lane_take_time_and_do_not_overlap(events: list[Event]) -> None:
    slices = of(events, "X")
    named = {(e["pid"], e["tid"]) for e in of(events, "M") if e["name"] == "thread_name"}
    ends: dict[tuple[int, int], float] = {}

    assert slices
    for event in slices:
        track = event["pid"], event["tid"]
        assert track in named
        assert event["dur"] > 0
        assert event["ts"] >= ends.get(track, 0) - 1e-6
        ends[track] = event["ts"] + event["dur"]


def test_every_begin_of_a_request_and_a_phase_has_its_end(events: list[Event]) -> None:
    open_slices: dict[tuple[int, str], list[str]] = {}

    for event in events:
        stack = open_slices.setdefault((event["pid"], str(event.get("id2"))), [])
        if event["ph"] == "b":
            stack.append(event["name"])
        elif event["ph"] == "e":
            assert stack.pop() == event["name"]

    assert of(events, "b")
    assert not any(open_slices.values())


def test_every_arrow_leads_from_a_launch_to_a_later_one_with_the_same_request(
    events: list[Event],
) -> None:
    starts = {event["id"]: event for event in of(events, "s")}
    ends = {event["id"]: event for event in of(events, "f")}

    assert starts.keys() == ends.keys()
    assert len(starts) == len(of(events, "s")) > 0
    for flow, start in starts.items():
        before, after = (enclosing(events, end) for end in (start, ends[flow]))
        assert set(before["args"]["requests"]) & set(after["args"]["requests"])
        assert before["ts"] + before["dur"] <= after["ts"] + 1e-6


def enclosing(events: list[Event], arrow: Event) -> Event:
    """The slice an end of an arrow binds to: the last on its track that has begun."""
    slices = [
        event
        for event in of(events, "X")
        if (event["pid"], event["tid"]) == (arrow["pid"], arrow["tid"])
        and event["ts"] <= arrow["ts"] <= event["ts"] + event["dur"]
    ]
    assert slices
    return slices[-1]


def test_counters_are_whole_numbers_that_never_fall_below_zero(events: list[Event]) -> None:
    lengths = [event["args"]["requests"] for event in of(events, "C")]

    assert lengths
    assert all(isinstance(length, int) and length >= 0 for length in lengths)


def test_a_launch_says_what_ran(by_hand: list[Event]) -> None:
    first = of(by_hand, "X")[0]

    assert first["name"] == "pi0 x1"
    assert first["args"] == {"rows": 1, "size": 1, "share": 4, "layout": 0, "requests": [1]}
    assert (first["ts"], first["dur"]) == (0, 10_000)


def test_a_session_has_a_row_with_its_requests_and_their_outcomes(by_hand: list[Event]) -> None:
    ends = [event for event in of(by_hand, "e") if event["name"] == "hand"]

    assert [event["args"]["outcome"] for event in ends] == ["superseded", "served"]


def test_a_request_without_an_outcome_says_so(by_hand: list[Event]) -> None:
    last = [event for event in of(by_hand, "e") if event["name"] == "arm"][-1]

    assert (last["pid"], last["args"]["outcome"]) == (2, "none yet")


def test_what_was_missed_is_an_instant(by_hand: list[Event]) -> None:
    (missed,) = of(by_hand, "i")

    assert missed["name"] == "superseded: pi0"
    assert missed["args"] == {"request": 2, "session": "hand"}
    assert missed["ts"] == 6_000


def test_every_request_of_a_simulation_is_there_once(simulation: list[Event]) -> None:
    begun = Counter(e["args"]["request"] for e in of(simulation, "b") if e["args"])

    assert set(begun.values()) == {1}
    assert len(begun) > 50
    outcomes = {e["args"]["outcome"] for e in of(simulation, "b") if e["args"]}
    assert outcomes <= {phase.value for phase in Phase}
