"""Follows lanes, queues and requests through a trace: a fold over the scheduler's events.

A *story* is what happened under one setup: every launch with its begin and end, every request with
the time it spent in each phase, and how many requests waited for each model and stage. Instants
count from the first event of the file.

Start reading at :func:`stories_of`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from takt.core.events import Decide, Ended, Event, Finish, Moved, Submit, Switched
from takt.core.launch import Lane, Launch
from takt.core.request import Phase, Stage
from takt.core.trace import Setup
from takt.errors import UsageError
from takt.units import Nanos, to_ms

__all__ = [
    "ALWAYS",
    "LaunchSpan",
    "Leg",
    "Life",
    "Span",
    "Story",
    "Waiting",
    "Window",
    "stories_of",
]

_MOST_PARTS = 1_000_000
"""Launches, phases and queue lengths kept at the same time: about a gigabyte as events."""
_WAITS = {Phase.QUEUED: Stage.PREFIX, Phase.READY: Stage.DENOISE}
_RUNS = {Stage.PREFIX: Phase.PREFIXING, Stage.DENOISE: Phase.DENOISING}


class Window(NamedTuple):
    """The part of a trace that is looked at."""

    start: Nanos
    end: Nanos | None
    """None: to its end."""

    def shows(self, start: Nanos, end: Nanos) -> bool:
        """Whether any of a span lies in it."""
        return end >= self.start and (self.end is None or start < self.end)


ALWAYS = Window(0, None)


class LaunchSpan(NamedTuple):
    """A launch with its time."""

    launch: Launch
    start: Nanos
    end: Nanos
    failed: tuple[int, ...]
    has_finished: bool
    """False where the trace, or what is looked at of it, ends before the launch does."""


class Span(NamedTuple):
    """Time a request spent in one phase."""

    phase: Phase
    start: Nanos
    end: Nanos


class Leg(NamedTuple):
    """A launch that a request was a row of."""

    lane: Lane
    start: Nanos
    end: Nanos


class Waiting(NamedTuple):
    """From this instant on, so many requests wait for a stage of a model."""

    at: Nanos
    model: str
    stage: Stage
    requests: int


@dataclass(slots=True, kw_only=True)
class Life:
    """One request from its arrival on."""

    seq: int
    model: str
    session: str
    start: Nanos
    """Its arrival."""
    due: Nanos
    promise: Nanos
    expires: Nanos
    phase: Phase = Phase.QUEUED
    """Its outcome, or where it is when the trace ends."""
    end: Nanos = 0
    """Instant of its outcome."""
    spans: list[Span] = field(default_factory=list[Span])
    """Its phases, one after the other without a gap."""
    legs: list[Leg] = field(default_factory=list[Leg])
    """Its launches that have finished."""
    since: Nanos = 0
    """Instant it entered its present phase."""

    def move(self, to: Phase, at: Nanos) -> None:
        """Enter a phase. What took no time is no span."""
        if at > self.since:
            self.spans.append(Span(self.phase, self.since, at))
        self.phase, self.since = to, at


class Story:
    """What happened under one setup.

    Args:
        setup: How the scheduler was set up.
        window: What of it is kept.
    """

    def __init__(self, setup: Setup, window: Window = ALWAYS) -> None:
        self.setup = setup
        self.launches: list[LaunchSpan] = []
        """In the order in which they ended."""
        self.lives: list[Life] = []
        """In the order of their outcomes, those without one last."""
        self.waiting: list[Waiting] = []
        """Changes of the queues' lengths, in their order."""
        self.start: Nanos | None = None
        """Its first instant, None while nothing has happened."""
        self.end: Nanos = 0
        """Its last instant."""
        self._window = window
        self._running: dict[Lane, tuple[Launch, Nanos]] = {}
        self._alive: dict[int, Life] = {}
        self._lengths: Counter[tuple[str, Stage]] = Counter()
        self._shown: Counter[tuple[str, Stage]] = Counter()
        self._moving: list[tuple[Nanos, int]] = []
        self._num_parts = 0

    def add(self, event: Event, origin: Nanos) -> None:
        """Take in one event; ``origin`` is the instant from which on is counted.

        Raises:
            UsageError: It cannot follow on what came before.
        """
        at = event.at - origin
        if self.start is None:
            self.start = self.end = at
        self._arrive_until(at)
        self._advance(at)
        if isinstance(event, Submit):
            self._submit(event, origin)
        elif isinstance(event, Decide):
            for launch in event.launches:
                self._start_launch(launch, at)
        elif isinstance(event, Finish):
            self._finish(event, at)
        elif isinstance(event, Moved):
            self._move(event, at, origin)
        elif isinstance(event, Ended):
            self._close(self._life(event.seq, at), event.phase, at)

    def finish(self, until: Nanos | None = None) -> None:
        """The trace is over, or looked at no further: what still runs or waits ends here."""
        self._show_lengths()
        self.end = max(self.end, until or 0)
        for lane, (launch, start) in self._running.items():
            self._keep_launch(LaunchSpan(launch, start, self.end, (), has_finished=False))
            self._add_leg(launch, Leg(lane, start, self.end))
        for life in self._alive.values():
            life.move(life.phase, self.end)
            life.end = self.end
            self._keep_life(life)
        self._running.clear()
        self._alive.clear()

    @property
    def shown_from(self) -> Nanos:
        """Where what is kept of it begins."""
        return max(self.start or 0, self._window.start)

    @property
    def lanes(self) -> list[Lane]:
        """The lanes that ran something."""
        return sorted({span.launch.lane for span in self.launches})

    def _submit(self, event: Submit, origin: Nanos) -> None:
        arrival = event.arrival - origin
        life = Life(
            seq=event.seq,
            model=event.model,
            session=event.session,
            start=arrival,
            since=arrival,
            due=event.due - origin,
            promise=event.promise - origin,
            expires=event.expires - origin,
        )
        self._alive[event.seq] = life
        self._lengths[life.model, Stage.PREFIX] += 1

    def _start_launch(self, launch: Launch, at: Nanos) -> None:
        if launch.lane in self._running:
            raise UsageError(f"at {to_ms(at):g} ms: a launch starts on a lane that is not idle")
        self._running[launch.lane] = launch, at
        for seq in launch.requests:
            self._enter(self._life(seq, at), _RUNS[launch.lane.stage], at)

    def _finish(self, event: Finish, at: Nanos) -> None:
        if event.lane not in self._running:
            raise UsageError(f"at {to_ms(at):g} ms: a launch ends on a lane that is idle")
        launch, start = self._running.pop(event.lane)
        self._keep_launch(LaunchSpan(launch, start, at, event.failed, has_finished=True))
        self._add_leg(launch, Leg(event.lane, start, at))
        for seq in launch.requests:
            life = self._alive.get(seq)
            if life is not None:  # a cancelled request has ended while its row ran on
                self._enter(life, Phase.READY, at)

    def _add_leg(self, launch: Launch, leg: Leg) -> None:
        for seq in launch.requests:
            life = self._alive.get(seq)
            if life is not None:
                life.legs.append(leg)

    def _move(self, event: Moved, at: Nanos, origin: Nanos) -> None:
        self._enter(self._life(event.seq, at), Phase.MOVING, at)
        heapq.heappush(self._moving, (event.until - origin, event.seq))

    def _arrive_until(self, at: Nanos) -> None:
        """Let the caches arrive that were on their way to another device."""
        while self._moving and self._moving[0][0] <= at:
            until, seq = heapq.heappop(self._moving)
            life = self._alive.get(seq)
            if life is not None and life.phase is Phase.MOVING:
                self._advance(until)
                self._enter(life, Phase.READY, until)

    def _enter(self, life: Life, to: Phase, at: Nanos) -> None:
        if life.phase in _WAITS:
            self._lengths[life.model, _WAITS[life.phase]] -= 1
        if to in _WAITS:
            self._lengths[life.model, _WAITS[to]] += 1
        life.move(to, at)

    def _close(self, life: Life, outcome: Phase, at: Nanos) -> None:
        self._enter(life, outcome, at)
        life.end = at
        del self._alive[life.seq]
        self._keep_life(life)

    def _life(self, seq: int, at: Nanos) -> Life:
        life = self._alive.get(seq)
        if life is None:
            raise UsageError(f"at {to_ms(at):g} ms: there is no request {seq}")
        return life

    def _advance(self, at: Nanos) -> None:
        if at < self.end:
            raise UsageError(f"at {to_ms(at):g} ms: an event before {to_ms(self.end):g} ms")
        if at > self.end:
            self._show_lengths()
            self.end = at

    def _show_lengths(self) -> None:
        """Note the queues whose lengths are others now; within an instant only the last counts."""
        if not self._window.shows(self.end, self.end):
            return
        for (model, stage), length in self._lengths.items():
            if self._shown[model, stage] != length:
                self._shown[model, stage] = length
                self._count(1)
                self.waiting.append(Waiting(self.end, model, stage, length))

    def _keep_launch(self, span: LaunchSpan) -> None:
        if self._window.shows(span.start, span.end):
            self._count(1)
            self.launches.append(span)

    def _keep_life(self, life: Life) -> None:
        if self._window.shows(life.start, life.end):
            self._count(len(life.spans) + len(life.legs))
            self.lives.append(life)

    def _count(self, parts: int) -> None:
        self._num_parts += parts
        if self._num_parts > _MOST_PARTS:
            raise UsageError("the trace is too long to be shown at once; narrow it by --seconds")


def stories_of(parts: Iterable[Setup | Event], window: Window = ALWAYS) -> list[Story]:
    """One story for each setup under which something happened.

    Args:
        parts: A trace, as :func:`~takt.cli.tracing.reading.read_trace` gives it.
        window: What of it is kept.

    Raises:
        UsageError: Its events do not fit together, or there are too many.
    """
    stories: list[Story] = []
    origin: Nanos | None = None
    last: Nanos = 0
    for part in parts:
        if isinstance(part, Switched):  # nothing is under way: what follows is a story of its own
            part = Setup.from_json(part.setup)
        if isinstance(part, Setup):
            stories.append(Story(part, window))
            continue
        story = stories[-1]
        # The clock of a computer that was started again begins anew.
        if origin is None or (story.start is None and part.at - origin < last):
            origin = part.at - last
        last = part.at - origin
        if window.end is not None and last >= window.end:
            story.finish(window.end if story.start is not None else None)
            break
        story.add(part, origin)
    for story in stories:
        story.finish()
    return [story for story in stories if story.start is not None]
