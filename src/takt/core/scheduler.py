"""Decides which batches run next on one device.

The scheduler is a plain object with one owner. A driver tells it what happened (``submit``,
``cancel``, ``finish``) and asks what to run (``decide``); the worker does so in real time, the
simulator in virtual time, and both run the same lines.

Start reading at :meth:`Scheduler.decide`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from heapq import heappop, heappush

from takt.core.batching import View
from takt.core.disciplines import Discipline
from takt.core.events import Cancel, Decide, Ended, Event, Finish, Submit
from takt.core.formations import Formation
from takt.core.launch import Decision, Lane, Launch
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.queue import Queue
from takt.core.request import Phase, Request, Stage
from takt.errors import InvariantError, UsageError
from takt.units import Nanos

__all__ = ["Lateness", "Scheduler"]

_WAITING = {Phase.QUEUED: Stage.PREFIX, Phase.READY: Stage.DENOISE}
_STARTED = {Stage.PREFIX: Phase.PREFIXING, Stage.DENOISE: Phase.DENOISING}


class Lateness(Enum):
    """What becomes of a request that can no longer be on time."""

    YIELD = "yield"
    """It yields to every feasible request, and regains its order after one slo of yielding."""
    SERVE_LATE = "serve_late"
    """Nothing: it keeps its order. For comparisons."""
    REFUSE_AT_DUE = "refuse_at_due"
    """It is refused once it is late by both measures. For comparisons."""


class Scheduler:
    """Queues of one device, and the rules that empty them.

    Args:
        models: The models loaded on the device.
        profile: Times of their launches on this device.
        formation: How the device's lanes are driven.
        discipline: Which queue goes next.
        lateness: What becomes of requests that can no longer be on time.
    """

    def __init__(
        self,
        models: Iterable[Model],
        profile: Profile,
        formation: Formation,
        discipline: Discipline,
        *,
        lateness: Lateness = Lateness.YIELD,
    ) -> None:
        self._models = {model.name: model for model in models}
        self._formation = formation
        self._lateness = lateness
        self._service = {
            name: [formation.expected(profile, model, layout) for layout in range(len(model.holds))]
            for name, model in self._models.items()
        }
        self._queues = {
            stage: {name: Queue(model, stage) for name, model in self._models.items()}
            for stage in Stage
        }
        self._view = View(
            profile=profile,
            discipline=discipline,
            queues=(
                tuple(self._queues[Stage.PREFIX].values()),
                tuple(self._queues[Stage.DENOISE].values()),
            ),
        )
        self._live: dict[int, Request] = {}
        self._queued_of: dict[str, Request] = {}
        # Stages compare, phases do not: entries of one request may tie on their instant.
        self._rank_changes: list[tuple[Nanos, int, Stage, bool]] = []
        self._expiries: list[tuple[Nanos, int]] = []
        self._events: list[Event] = []
        self._now: Nanos | None = None
        self._last_seq = -1
        self._turn = 0

    # What happened

    def submit(self, request: Request, now: Nanos) -> None:
        """A request arrived.

        It supersedes an older request of its session that still waits for its prefix, unless
        :attr:`~takt.core.request.Request.supersede` says otherwise.

        Raises:
            UsageError: No such model or layout, or the request's number does not rise.
        """
        self._check(request)
        self._pass(now)
        self._last_seq = request.seq
        self._events.append(_submitted(request, now))
        self._live[request.seq] = request
        older = self._queued_of.get(request.session)
        if older is not None and request.supersede:
            self._withdraw(older)
            self._end(older, Phase.SUPERSEDED, now)
        if self._lateness is Lateness.REFUSE_AT_DUE:
            request.expires = min(request.expires, request.latest)
        self._wait(request, now)

    def cancel(self, seq: int, now: Nanos) -> None:
        """Nobody wants the answer to request ``seq`` any more; one that has ended is left alone.

        A running launch goes on; the row is computed for nothing.
        """
        self._pass(now)
        self._events.append(Cancel(now, seq))
        request = self._live.get(seq)
        if request is not None:
            if request.phase in _WAITING:
                self._withdraw(request)
            self._end(request, Phase.CANCELLED, now)

    def finish(self, lane: Lane, now: Nanos, failed: Collection[int] = ()) -> None:
        """The launch on ``lane`` ended.

        Args:
            lane: Where it ran.
            now: The instant.
            failed: Requests of it whose rows could not be computed; the others are untouched.

        Raises:
            InvariantError: Nothing runs on ``lane``.
        """
        self._pass(now)
        launch = self._view.running.pop(lane, None)
        if launch is None:
            raise InvariantError(f"a launch ended on {lane}, which runs none")
        self._events.append(Finish(now, lane, tuple(failed)))
        for seq in launch.requests:
            request = self._live.get(seq)
            if request is not None:
                self._leave(request, launch, now, seq in failed)

    # What to do

    def decide(self, now: Nanos) -> Decision:
        """Say what to run now.

        All events of this instant must be in. Requests that have expired are refused first; then
        the formation looks at the queues and the lanes and proposes launches.

        Returns:
            The launches to start now, and the instant at which to ask again if nothing happens
            before then.
        """
        self._pass(now)
        self._expire(now)
        self._rerank(now)
        decision = self._formation.decide(self._view, now)
        for launch in decision.launches:
            self._start(launch)
        wake_at = self._wake_at(decision.wake_at)
        decision = Decision(decision.launches, wake_at)
        self._events.append(Decide(now, decision.launches, wake_at))
        return decision

    def take_events(self) -> list[Event]:
        """Events since the last call, in order. A driver takes them after every decision."""
        events, self._events = self._events, []
        return events

    @property
    def waiting(self) -> int:
        """Requests that wait for a stage."""
        return sum(len(queue) for queues in self._view.queues for queue in queues)

    @property
    def unfinished(self) -> int:
        """Requests that have no outcome yet."""
        return len(self._live)

    # How

    def _check(self, request: Request) -> None:
        model = self._models.get(request.model)
        if model is None:
            known = ", ".join(sorted(self._models))
            raise UsageError(f"no model {request.model!r} on this device; it serves: {known}")
        if not 0 <= request.layout < len(model.holds):
            raise UsageError(
                f"model {model.name!r} has layouts 0 to {len(model.holds) - 1},"
                f" got {request.layout}",
            )
        if request.seq <= self._last_seq:
            raise UsageError(f"request numbers must rise, got {request.seq} after {self._last_seq}")

    def _pass(self, now: Nanos) -> None:
        if self._now is not None and now < self._now:
            raise InvariantError(f"time went back from {self._now} to {now}")
        self._now = now

    def _queue_of(self, request: Request) -> Queue:
        return self._queues[_WAITING[request.phase]][request.model]

    def _service_of(self, request: Request) -> Nanos:
        """Expected time from now to the answer of a waiting request, if it started now."""
        prefix, denoise = self._service[request.model][request.layout]
        return denoise if request.phase is Phase.READY else prefix + denoise

    def _wait(self, request: Request, now: Nanos) -> None:
        """Put a QUEUED or READY request into its queue, or refuse it if it has expired."""
        if now >= request.expires:
            self._end(request, Phase.EXPIRED, now)
            return
        queue = self._queue_of(request)
        queue.add(request)
        if request.phase is Phase.QUEUED:
            self._queued_of[request.session] = request
        heappush(self._expiries, (request.expires, request.seq))
        if self._lateness is Lateness.YIELD:
            hopeless_from = max(now, request.latest - self._service_of(request) + 1)
            heappush(self._rank_changes, (hopeless_from, request.seq, queue.stage, True))

    def _withdraw(self, request: Request) -> None:
        """Take a waiting request out of its queue."""
        self._queue_of(request).remove(request)
        if self._queued_of.get(request.session) is request:
            del self._queued_of[request.session]

    def _leave(self, request: Request, launch: Launch, now: Nanos, failed: bool) -> None:
        """A row of a finished launch goes to its next phase."""
        if failed:
            self._end(request, Phase.FAILED, now)
        elif launch.lane.stage is Stage.PREFIX and not self._models[launch.model].single_pass:
            request.move(Phase.READY)
            self._wait(request, now)
        else:
            self._end(request, Phase.SERVED, now)

    def _end(self, request: Request, phase: Phase, now: Nanos) -> None:
        request.move(phase)
        del self._live[request.seq]
        self._events.append(Ended(now, request.seq, phase))

    def _start(self, launch: Launch) -> None:
        if launch.lane in self._view.running:
            raise InvariantError(f"{launch.lane} was given a launch while it runs one")
        self._view.running[launch.lane] = launch
        self._turn += 1
        stage = launch.lane.stage
        self._queues[stage][launch.model].turn = self._turn
        for seq in launch.requests:
            request = self._live[seq]
            self._withdraw(request)
            request.move(_STARTED[stage])

    def _expire(self, now: Nanos) -> None:
        expiries = self._expiries
        while expiries and expiries[0][0] <= now:
            request = self._live.get(heappop(expiries)[1])
            if request is not None and request.phase in _WAITING:
                self._withdraw(request)
                self._end(request, Phase.EXPIRED, now)

    def _rerank(self, now: Nanos) -> None:
        """Let requests that have become hopeless yield, and those that yielded one slo regain."""
        changes = self._rank_changes
        while changes and changes[0][0] <= now:
            since, seq, stage, yields = heappop(changes)
            request = self._live.get(seq)
            if request is None or _WAITING.get(request.phase) is not stage:
                continue  # it has moved on; its new phase has its own entry
            queue = self._queue_of(request)
            if yields:
                queue.yield_place(request)
                regains = since + self._models[request.model].slo
                # An answer after `expires` is worthless: such a request would regain its order
                # only to make feasible ones late in their turn.
                if regains + self._service_of(request) < request.expires:
                    heappush(changes, (regains, seq, stage, False))
            else:
                queue.regain_place(request)

    def _wake_at(self, asked: Nanos | None) -> Nanos | None:
        """The earlier of the formation's wish and the next expiry of a waiting request."""
        expiries = self._expiries
        while expiries:
            expires, seq = expiries[0]
            request = self._live.get(seq)
            if request is not None and request.phase in _WAITING:
                return expires if asked is None else min(asked, expires)
            heappop(expiries)
        return asked


def _submitted(request: Request, now: Nanos) -> Submit:
    return Submit(
        now,
        request.seq,
        request.model,
        request.session,
        request.arrival,
        request.due,
        request.promise,
        request.expires,
        request.layout,
        request.supersede,
    )
