"""What a worker recorded gives the same decisions again, and a changed record does not."""

import json

import pytest
from tests.runtime.driving import Rig

from takt.core.request import Stage
from takt.core.trace import replay
from takt.errors import TaktError
from takt.runtime.events import GatewayLost
from takt.runtime.trace_file import split_traces


@pytest.fixture
def trace() -> list[str]:
    """A run with a cancel, a supersede, an expiry, a failed row and a gateway that dies."""
    rig = Rig(failing={2: Stage.DENOISE})
    rig.step(rig.arrival(session="a"), rig.arrival(session="b"))
    rig.submit(session="c")
    rig.submit(session="c", expires_in=15)
    unwanted = rig.submit(session="d")
    rig.advance(5, rig.gateway.cancel(unwanted))
    rig.run_out()
    rig.step(rig.arrival(session="e"), rig.arrival(session="f"))
    rig.advance(3, GatewayLost(rig.gateway))
    rig.run_out()
    return rig.trace


def test_a_run_with_every_kind_of_end_replays(trace: list[str]) -> None:
    ended = {json.loads(line)["phase"] for line in trace if '"event":"ended"' in line}

    assert ended == {"served", "failed", "expired", "superseded", "cancelled"}
    assert list(replay(trace)) == trace


def test_a_setup_that_changed_meanwhile_begins_a_trace_of_its_own() -> None:
    rig = Rig()
    rig.submit()
    rig.step(rig.setup_changed())
    rig.submit()
    rig.run_out()

    first, second = split_traces(f"{line}\n" for line in rig.trace)

    assert [*first, *second] == rig.trace
    assert list(replay(first)) == first
    assert list(replay(second)) == second


def events_of(trace: list[str], kind: str) -> list[int]:
    return [place for place, line in enumerate(trace) if f'"event":"{kind}"' in line]


def test_a_reordered_event_does_not_replay(trace: list[str]) -> None:
    first, second = events_of(trace, "submit")[:2]
    reordered = [*trace]
    reordered[first], reordered[second] = reordered[second], reordered[first]

    assert not replays(reordered)


@pytest.mark.parametrize("kind", ["submit", "cancel", "finish"])
def test_a_trace_that_lacks_an_event_does_not_replay(trace: list[str], kind: str) -> None:
    place = events_of(trace, kind)[0]

    assert not replays(trace[:place] + trace[place + 1 :])


def replays(trace: list[str]) -> bool:
    try:
        return list(replay(trace)) == trace
    except TaktError:
        return False
