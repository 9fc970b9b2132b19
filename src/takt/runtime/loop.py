"""What a worker does in one instant: takes in what happened, decides once, gives out what follows.

The loop opens no socket, starts no thread and reads no clock. Its driver hands it the events of an
instant and the instant; it hands launches to the lanes and leaves messages for gateways with
:meth:`WorkerLoop.take_messages`. Tests drive it with a manual clock and fake lanes, and the
simulator's device must take the same decisions (``tests/twin``).

A request is known by its number in the core and by ``(connection, slot reference)`` outside. It
keeps its slot of the key/value cache from its arrival until it has its outcome *and* no running
launch reads its row; only then does a cancelled request's gateway hear Released.

Start reading at :meth:`WorkerLoop.step`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from takt.core.events import Event
from takt.core.launch import NOTHING, Decision, Lane, Launch
from takt.core.request import Phase, Request, Stage
from takt.core.scheduler import Scheduler
from takt.core.timeline import Outcome as Ending
from takt.core.timeline import Timeline
from takt.core.trace import Setup, event_line, trace_lines
from takt.link.messages import (
    Outcome,
    Progress,
    Released,
    Reply,
    SlotRef,
    WorkerMessage,
)
from takt.runtime.admission import RowSource, UnservableError, open_row
from takt.runtime.events import (
    Arrived,
    Cancelled,
    DrainAsked,
    DrivingOffered,
    GatewayLost,
    HappenedOutside,
    LoopEvent,
    SetupChanged,
)
from takt.runtime.launches import Completed, Job, Lanes
from takt.runtime.models import LoadedModel
from takt.runtime.requests import AdmittedRequest, reply_to
from takt.units import Nanos

__all__ = ["TraceSink", "WorkerLoop"]

TraceSink: TypeAlias = Callable[[Sequence[str]], None]
"""Receives lines of :mod:`takt.core.trace`. A line with a setup begins a trace of its own."""


_COUNTED = {
    stage: (f"launches_{stage.name.lower()}", f"rows_{stage.name.lower()}") for stage in Stage
}


@dataclass(slots=True)
class _Link:
    """What the loop knows of one connection."""

    seqs: dict[SlotRef, int | None] = field(default_factory=dict[SlotRef, "int | None"])
    """Number of each request that has not been answered or released; None while it is held back."""
    started: list[SlotRef] = field(default_factory=list[SlotRef])
    """Requests that went into a launch since the last progress report."""
    is_draining: bool = False


class WorkerLoop:
    """The worker without its process.

    Args:
        lanes: Run the launches.
        trace: Receives a trace from which the run can be replayed.
    """

    def __init__(self, lanes: Lanes, *, trace: TraceSink | None = None) -> None:
        self.counters: Counter[str] = Counter()
        """Requests by outcome, launches and rows by stage, since the start."""
        self.launches_started = 0
        self.launches_finished = 0
        self._lanes = lanes
        self._trace = trace
        self._scheduler: Scheduler | None = None
        self._timeline = Timeline()
        self._models: Mapping[str, LoadedModel] = {}
        self._free_kv: dict[str, list[int]] = {}
        self._next: SetupChanged | None = None
        self._offered: Setup | None = None
        self._held_back: list[Arrived] = []
        self._seq = 0
        self._requests: dict[int, AdmittedRequest] = {}
        self._running: dict[Lane, Job] = {}
        self._links: dict[RowSource, _Link] = {}
        self._messages: list[tuple[RowSource, WorkerMessage]] = []
        self._is_draining = False

    # The seam

    def step(self, events: Iterable[LoopEvent], now: Nanos) -> Decision:
        """Take in what happened at ``now`` and decide once.

        Arrivals and cancels count in the order given, then completions, whatever the order given:
        all drivers of the core keep this order within an instant.

        Returns:
            What was started, and when to step again if nothing happens before.
        """
        completions: list[Completed] = []
        for event in events:
            if isinstance(event, Completed):
                completions.append(event)
            else:
                self._take_in(event, now)
        for completed in completions:
            self._complete(completed, now)
        self._change_setup(now)
        if self._offered is not None:
            self._switch(self._offered, now)
        return self._decide(now)

    def take_messages(self) -> list[tuple[RowSource, WorkerMessage]]:
        """Messages to gateways since the last call, in order."""
        messages, self._messages = self._messages, []
        return messages

    def progress(self, source: RowSource) -> Progress | None:
        """A sign of life for a gateway, None when it has nothing under way here."""
        link = self._links.get(source)
        if link is None or not link.seqs:
            return None
        started, link.started = link.started, []
        return Progress(
            launches_started=self.launches_started,
            launches_finished=self.launches_finished,
            running=tuple([ref for ref in started if ref in link.seqs]),
        )

    @property
    def models(self) -> Mapping[str, LoadedModel]:
        """The models in force, by name."""
        return self._models

    @property
    def awaits_change(self) -> bool:
        """Whether models or a formation wait until nothing is under way."""
        return self._next is not None or self._offered is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return self._is_quiet and not self._held_back

    @property
    def unfinished(self) -> int:
        """Requests without an outcome."""
        held_back = len(self._held_back)
        return held_back + (0 if self._scheduler is None else self._scheduler.unfinished)

    # What happened

    def _take_in(self, event: HappenedOutside, now: Nanos) -> None:
        match event:
            case Arrived():
                self._arrive(event, now)
            case Cancelled(source, ref):
                self._cancel(source, ref, now)
            case GatewayLost(source):
                self._lose(source, now)
            case DrainAsked(source):
                self._drain(source)
            case SetupChanged():
                self._next, self._offered = event, None
            case DrivingOffered(setup):
                self._offer(setup)

    def _arrive(self, event: Arrived, now: Nanos) -> None:
        link = self._links.setdefault(event.source, _Link())
        ref = event.submit.ref
        self.counters["submitted"] += 1
        if ref in link.seqs:
            self.counters["dropped_repeated"] += 1  # the first of its kind gets the answer
        elif self._is_draining or link.is_draining:
            sentence = "the worker is draining and takes no new requests"
            self._refuse(event, Outcome.DRAINING, sentence)
        elif self._next is not None:
            link.seqs[ref] = None
            self._held_back.append(event)
        else:
            self._submit(event, link, now)

    def _submit(self, event: Arrived, link: _Link, now: Nanos) -> None:
        try:
            request = self._admit(event, now)
        except UnservableError as error:
            self._refuse(event, error.outcome, str(error))
            return
        link.seqs[event.submit.ref] = request.seq
        assert self._scheduler is not None
        self._scheduler.submit(request, now)

    def _admit(self, event: Arrived, now: Nanos) -> Request:
        source, submit = event
        loaded = self._models.get(submit.model)
        if loaded is None:
            ready = ", ".join(self._models) or "none"
            sentence = f"no model {submit.model!r} is ready on this worker; ready: {ready}"
            raise UnservableError(Outcome.UNKNOWN_MODEL, sentence)
        held = open_row(source, submit, loaded)
        free = self._free_kv[submit.model]
        if not free:
            sentence = f"{loaded.kv_slots} requests of {submit.model!r} are under way; try later"
            raise UnservableError(Outcome.BUSY, sentence)
        # Both processes are on one host and read one clock, see takt.link.messages.
        times = submit.times(origin=submit.sent)
        self._seq += 1
        self._requests[self._seq] = AdmittedRequest(
            source=source,
            held=held,
            model=submit.model,
            kv_slot=free.pop(),
            arrival=times.arrival,
            received=now,
        )
        return Request(
            seq=self._seq,
            model=submit.model,
            session=f"{source.epoch:x}/{submit.session}",
            arrival=times.arrival,
            due=times.due,
            promise=times.promise,
            expires=times.expires,
            layout=submit.layout,
            supersede=submit.supersede,
        )

    def _cancel(self, source: RowSource, ref: SlotRef, now: Nanos) -> None:
        link = self._links.get(source)
        if link is None or ref not in link.seqs:
            return  # its answer is on the way
        seq = link.seqs[ref]
        if seq is None:
            self._held_back = [
                held
                for held in self._held_back
                if held.source is not source or held.submit.ref != ref
            ]
            self._settle(source, ref, Released(ref=ref), Outcome.CANCELLED)
        else:
            self._cancel_in_core(seq, now)

    def _cancel_in_core(self, seq: int, now: Nanos) -> None:
        assert self._scheduler is not None
        if not self._requests[seq].has_ended:
            self._scheduler.cancel(seq, now)

    def _lose(self, source: RowSource, now: Nanos) -> None:
        link = self._links.pop(source, None)
        if link is None:
            return
        self._held_back = [held for held in self._held_back if held.source is not source]
        self._messages = [entry for entry in self._messages if entry[0] is not source]
        for seq in link.seqs.values():
            if seq is not None:
                self._cancel_in_core(seq, now)

    def _drain(self, source: RowSource | None) -> None:
        if source is None:
            self._is_draining = True
        else:
            self._links.setdefault(source, _Link()).is_draining = True

    def _offer(self, setup: Setup) -> None:
        if self._next is None:
            self._offered = setup
        else:  # models that come or go wait for the same moment
            self._next = self._next._replace(setup=setup)

    def _complete(self, completed: Completed, now: Nanos) -> None:
        job = self._running.pop(completed.lane)
        self.launches_finished += 1
        for seq in job.launch.requests:
            request = self._requests[seq]
            request.lane = None
            request.chunk = completed.chunks.get(seq)
            request.failure = completed.failures.get(seq)
            if request.has_ended:
                self._forget(seq, Released(ref=request.held.ref), Outcome.CANCELLED)
        assert self._scheduler is not None
        failed = [seq for seq in job.launch.requests if seq in completed.failures]
        self._scheduler.finish(completed.lane, now, failed)

    # What follows

    def _change_setup(self, now: Nanos) -> None:
        """Put the next setup in force once nothing is under way in the old one.

        Requests that arrive meanwhile are held back, so that the wait is no longer than what is
        under way takes; a scheduler's profile and models never change under its requests.
        """
        if self._next is None or not self._is_quiet:
            return
        if self._scheduler is not None:
            self._follow(self._scheduler.take_events())
        (setup, self._models), self._next = self._next, None
        self._scheduler = setup.scheduler()
        self._free_kv = {
            name: [*reversed(range(loaded.kv_slots))] for name, loaded in self._models.items()
        }
        if self._trace is not None:
            self._trace([*trace_lines(setup, ())])
        held_back, self._held_back = self._held_back, []
        for event in held_back:
            link = self._links[event.source]
            del link.seqs[event.submit.ref]
            self._submit(event, link, now)

    def _switch(self, setup: Setup, now: Nanos) -> None:
        """Drive the same models in another way, if nothing is under way.

        Nobody waits for it: a device that is never idle keeps its formation.
        """
        if self._scheduler is None or not self._is_quiet:
            return
        self._offered = None
        self._scheduler = setup.successor(self._scheduler, now)

    @property
    def _is_quiet(self) -> bool:
        unfinished = 0 if self._scheduler is None else self._scheduler.unfinished
        return not self._running and not unfinished

    def _decide(self, now: Nanos) -> Decision:
        if self._scheduler is None:
            return NOTHING
        decision = self._scheduler.decide(now)
        # First the launches: robots' answers are written while the lanes work already.
        for launch in decision.launches:
            self._start(launch)
        self._follow(self._scheduler.take_events())
        if self._next is not None and self._is_quiet:
            return Decision(decision.launches, now)  # the last one expired: change the setup
        return decision

    def _start(self, launch: Launch) -> None:
        requests = [self._requests[seq] for seq in launch.requests]
        job = Job(
            launch=launch,
            model=self._models[launch.model],
            rows=tuple([request.held for request in requests]),
            kv_slots=tuple([request.kv_slot for request in requests]),
        )
        for request in requests:
            request.lane = launch.lane
            link = self._links.get(request.source)
            if link is not None and launch.lane.stage is Stage.PREFIX:
                link.started.append(request.held.ref)
        self._running[launch.lane] = job
        self.launches_started += 1
        launches, rows = _COUNTED[launch.lane.stage]
        self.counters[launches] += 1
        self.counters[rows] += len(requests)
        self._lanes.start(job)

    def _follow(self, events: list[Event]) -> None:
        """Answer the requests that have ended."""
        if self._trace is not None:
            self._trace([event_line(event) for event in events])
        for event in events:
            ending = self._timeline.add(event)
            if ending is not None:
                self._end(ending)
        for rows in self._timeline.rows.values():
            rows.clear()  # kept for reports on a run that ends; a server runs on

    def _end(self, ending: Ending) -> None:
        request = self._requests[ending.seq]
        if ending.phase is not Phase.CANCELLED:
            reply = reply_to(request, ending)
            self._forget(ending.seq, reply, reply.outcome)
        elif request.lane is None:
            self._forget(ending.seq, Released(ref=request.held.ref), Outcome.CANCELLED)
        else:
            request.has_ended = True  # released when its launch ends

    def _forget(self, seq: int, last: WorkerMessage, outcome: Outcome) -> None:
        request = self._requests.pop(seq)
        self._free_kv[request.model].append(request.kv_slot)
        self._settle(request.source, request.held.ref, last, outcome)

    def _refuse(self, event: Arrived, outcome: Outcome, sentence: str) -> None:
        reply = Reply(ref=event.submit.ref, outcome=outcome, detail=sentence)
        self._settle(event.source, event.submit.ref, reply, outcome)

    def _settle(
        self, source: RowSource, ref: SlotRef, last: WorkerMessage, outcome: Outcome
    ) -> None:
        """Say the one last thing about a request."""
        self.counters[outcome.name.lower()] += 1
        link = self._links.get(source)
        if link is not None:
            link.seqs.pop(ref, None)
            self._messages.append((source, last))
