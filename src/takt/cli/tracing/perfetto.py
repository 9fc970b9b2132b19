"""Writes stories as Chrome's trace-event JSON, which Perfetto and chrome://tracing show.

Each setup is a process of its own there. In it are a track for each lane, whose slices are the
launches; a track named "missed" with an instant for each request that was superseded, has expired,
was cancelled or failed; a counter for each queue; and a row for each session, with the requests
and in them the phases. Arrows lead a request from launch to launch.

The format: "Trace Event Format" of the Chromium project. Times are microseconds with three
decimals, which loses no nanosecond.

Start reading at :func:`trace_document`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from operator import itemgetter
from typing import Any, TypeAlias

from takt import __version__
from takt.cli.tracing.story import LaunchSpan, Life, Story, Waiting
from takt.core.launch import Lane
from takt.core.request import ENDED, Phase, Stage
from takt.units import MICROSECOND, Nanos, to_ms

__all__ = ["trace_document"]

_Fields: TypeAlias = dict[str, Any]
_Ranked: TypeAlias = tuple[Nanos, int, _Fields]
"""Instant, rank within it, and the event. A slice stands before the arrows that end at it."""

_MISSED_TRACK = 1
_FIRST_LANE = 2
_SLICE, _BESIDE = 0, 1
_MISSED = (Phase.SUPERSEDED, Phase.EXPIRED, Phase.CANCELLED, Phase.FAILED)


def trace_document(stories: Sequence[Story]) -> dict[str, Any]:
    """The stories as one JSON object."""
    flows = count(1)
    ranked: list[_Ranked] = []
    named: list[_Fields] = []
    for process, story in enumerate(stories, 1):
        named += _names(story, process)
        for at, rank, event in _events(story, flows):
            ranked.append((at, rank, {**event, "pid": process, "ts": at / MICROSECOND}))
    ranked.sort(key=itemgetter(0, 1))
    return {
        "displayTimeUnit": "ms",
        "otherData": {"takt_version": __version__},
        "traceEvents": [*named, *(event for _, _, event in ranked)],
    }


def _names(story: Story, process: int) -> Iterator[_Fields]:
    """Says what the tracks are called and how they are ordered."""
    models = ", ".join(model.name for model in story.setup.models)
    name = f"{process}: {story.setup.formation}, {models}"
    yield _meta("process_name", process, 0, name=name)
    yield _meta("process_sort_index", process, 0, sort_index=process)
    several = len({lane.device for lane in story.lanes}) > 1
    for lane in story.lanes:
        track = _track(lane)
        yield _meta("thread_name", process, track, name=_lane_name(lane, several))
        yield _meta("thread_sort_index", process, track, sort_index=track)
    if any(life.phase in _MISSED for life in story.lives):
        yield _meta("thread_name", process, _MISSED_TRACK, name="missed")


def _events(story: Story, flows: Iterator[int]) -> Iterator[_Ranked]:
    for span in story.launches:
        yield _launch(span)
    for waiting in story.waiting:
        yield _counter(waiting)
    for life in story.lives:
        yield from _life(life)
        yield from _arrows(life, flows)


def _launch(span: LaunchSpan) -> _Ranked:
    launch = span.launch
    rows = len(launch.requests)
    told: _Fields = {
        "rows": rows,
        "size": launch.size,
        "share": launch.share,
        "layout": launch.layout,
        "requests": [*launch.requests],
    }
    if span.failed:
        told["failed"] = [*span.failed]
    if not span.has_finished:
        told["runs_on"] = True
    event = {
        "ph": "X",
        "cat": launch.lane.stage.name.lower(),
        "name": f"{launch.model} x{rows}",
        "tid": _track(launch.lane),
        "dur": max(1, span.end - span.start) / MICROSECOND,
        "args": told,
    }
    return span.start, _SLICE, event


def _counter(waiting: Waiting) -> _Ranked:
    name = f"waiting for {waiting.stage.name.lower()}: {waiting.model}"
    event = {"ph": "C", "name": name, "tid": 0, "args": {"requests": waiting.requests}}
    return waiting.at, _BESIDE, event


def _life(life: Life) -> Iterator[_Ranked]:
    """The request as a slice, its phases in it, and an instant if it was missed."""
    outcome = life.phase.value if life.phase in ENDED else "none yet"
    told: _Fields = {
        "request": life.seq,
        "model": life.model,
        "outcome": outcome,
        "due_ms": to_ms(life.due - life.start),
        "promise_ms": to_ms(life.promise - life.start),
        "expires_ms": to_ms(life.expires - life.start),
    }
    yield life.start, _BESIDE, _async("b", life, life.session, told)
    for span in life.spans:
        yield span.start, _BESIDE, _async("b", life, span.phase.value, {})
        yield span.end, _BESIDE, _async("e", life, span.phase.value, {})
    yield life.end, _BESIDE, _async("e", life, life.session, {"outcome": outcome})
    if life.phase in _MISSED:
        event = {
            "ph": "i",
            "s": "t",
            "cat": "missed",
            "name": f"{outcome}: {life.model}",
            "tid": _MISSED_TRACK,
            "args": {"request": life.seq, "session": life.session},
        }
        yield life.end, _BESIDE, event


def _async(kind: str, life: Life, name: str, told: _Fields) -> _Fields:
    # Numbers may be used again under another setup, so the id is one of its process.
    return {
        "ph": kind,
        "cat": "request",
        "name": name,
        "id2": {"local": f"{life.seq:#x}"},
        "tid": _MISSED_TRACK,
        "args": told,
    }


def _arrows(life: Life, flows: Iterator[int]) -> Iterator[_Ranked]:
    """An arrow from each of its launches to the next."""
    for before, after in pairwise(life.legs):
        arrow = {"cat": "request", "name": "row", "id": next(flows)}
        # An arrow leaves within a slice: at its last nanosecond but never before its start.
        leaves = max(before.start, before.end - 1)
        yield leaves, _BESIDE, {**arrow, "ph": "s", "tid": _track(before.lane)}
        yield after.start, _BESIDE, {**arrow, "ph": "f", "bp": "e", "tid": _track(after.lane)}


def _meta(kind: str, process: int, track: int, **told: object) -> _Fields:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": told}


def _track(lane: Lane) -> int:
    return _FIRST_LANE + len(Stage) * lane.device + lane.stage


def _lane_name(lane: Lane, several: bool) -> str:
    stage = lane.stage.name.lower()
    return f"device {lane.device} {stage}" if several else stage
