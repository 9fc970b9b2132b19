"""Traces of the tests of this folder, made by hand or by a simulation."""

import json
from collections.abc import Sequence
from pathlib import Path

from tests.core.driving import model_of, profile_of

from takt.cli.main import main
from takt.core.events import Decide, Ended, Event, Finish, Submit
from takt.core.launch import Lane, Launch
from takt.core.request import Phase, Stage
from takt.core.trace import Setup, trace_lines
from takt.units import MILLISECOND

EXAMPLE = Path(__file__).parents[3] / "examples" / "fleet.yaml"
PREFIX, DENOISE = Lane(0, Stage.PREFIX), Lane(0, Stage.DENOISE)
ORIGIN = 5_000 * MILLISECOND
"""Clocks of real computers do not begin at 0."""


def setup(formation: str = "lockstep") -> Setup:
    model = model_of(slo=100 * MILLISECOND)
    return Setup(models=(model,), profile=profile_of(model), formation=formation)


def at(milliseconds: int) -> int:
    return ORIGIN + milliseconds * MILLISECOND


def submit(seq: int, when: int, session: str = "arm") -> Submit:
    return Submit(
        at(when),
        seq,
        "pi0",
        session,
        arrival=at(when),
        due=at(when + 100),
        promise=at(when + 100),
        expires=at(when + 200),
        layout=0,
        supersede=True,
    )


def decide(when: int, *launches: Launch) -> Decide:
    return Decide(at(when), launches, None)


def launch(lane: Lane, *requests: int) -> Launch:
    return Launch(lane, "pi0", requests, len(requests), 0, 4)


def finish(when: int, lane: Lane) -> Finish:
    return Finish(at(when), lane, ())


def ended(when: int, seq: int, phase: Phase) -> Ended:
    return Ended(at(when), seq, phase)


SERVED_AND_SUPERSEDED: Sequence[Event] = (
    submit(1, 0),
    decide(0, launch(PREFIX, 1)),
    submit(2, 4, "hand"),
    submit(3, 6, "hand"),
    ended(6, 2, Phase.SUPERSEDED),
    decide(6),
    finish(10, PREFIX),
    decide(10, launch(DENOISE, 1), launch(PREFIX, 3)),
    finish(20, PREFIX),
    finish(30, DENOISE),
    ended(30, 1, Phase.SERVED),
    decide(30, launch(DENOISE, 3)),
    finish(50, DENOISE),
    ended(50, 3, Phase.SERVED),
)


def lines_of(*traces: tuple[Setup, Sequence[Event]]) -> list[str]:
    """What a file with these traces holds."""
    return [f"{line}\n" for made, events in traces for line in trace_lines(made, events)]


def simulated(folder: Path, *options: str) -> Path:
    """The trace of the example fleet."""
    target = folder / "run.jsonl"
    assert main(["simulate", str(EXAMPLE), "--json", "--trace", str(target), *options]) == 0
    return folder / "run-gpu0.jsonl"


def setup_line() -> str:
    return json.dumps({"takt_trace": 1, "setup": setup().to_json()}) + "\n"
