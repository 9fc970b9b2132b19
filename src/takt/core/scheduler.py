"""Decides which batches run next on one device, or on a group of them.

The scheduler is a plain object with one owner. A driver tells it what happened (``submit``,
``cancel``, ``finish``) and asks what to run (``decide``); the worker does so in real time, the
simulator in virtual time, and both run the same lines.

Start reading at :meth:`Scheduler.decide`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from enum import Enum
from math import inf

from takt.core.alarms import Alarms
from takt.core.batching import View
from takt.core.disciplines import Discipline
from takt.core.events import Cancel, Decide, Ended, Event, Finish, Moved, Submit, Switched
from takt.core.formations import Formation
from takt.core.launch import Decision, Lane, Launch
from takt.core.model import Model
from takt.core.profile import CoRun, Profile
from takt.core.queue import Queue
from takt.core.request import Phase, Request, Stage
from takt.errors import InvariantError, UsageError
from takt.units import Nanos

__all__ = ["MOST_PRIORITY", "Lateness", "Scheduler"]

MOST_PRIORITY = 7
"""Last class a robot may be in."""

# By names of their own: looking a member up in its class takes ten times as long.
_PREFIX, _DENOISE = Stage.PREFIX, Stage.DENOISE
_QUEUED, _READY, _SERVED = Phase.QUEUED, Phase.READY, Phase.SERVED

_WAITING = {_QUEUED: _PREFIX, _READY: _DENOISE}
_STARTED = {_PREFIX: Phase.PREFIXING, _DENOISE: Phase.DENOISING}


class Lateness(Enum):
    """What becomes of a request that can no longer be on time."""

    YIELD = "yield"
    """It yields to every feasible request, and regains its order after one slo of yielding."""
    SERVE_LATE = "serve_late"
    """Nothing: it keeps its order. For comparisons."""
    REFUSE_AT_DUE = "refuse_at_due"
    """It is refused once it is late by both measures. For comparisons."""


class Scheduler:
    """Queues of one device or group, and the rules that empty them.

    Args:
        models: The models loaded on every device of the group.
        profile: Times of their launches on such a device.
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
        self._may_yield = lateness is Lateness.YIELD
        self._refuses_late = lateness is Lateness.REFUSE_AT_DUE
        self._profile = profile
        self._group = group = formation.group
        self._is_alone = len(group.home) == 1
        stages = [_PREFIX, *[_DENOISE] * len(group.home)]
        self._queues = [
            {name: self._queue(model, stage) for name, model in self._models.items()}
            for stage in stages
        ]
        self._view = View(
            profile=profile,
            discipline=discipline,
            queues=tuple(tuple(queues.values()) for queues in self._queues),
            forecast=CoRun(profile) if group.forecasts else None,
        )
        self._running = self._view.running
        self._live: dict[int, Request] = {}
        self._newest_of: dict[str, Request] = {}
        self._expiries, self._yields, self._regains = Alarms(), Alarms(), Alarms()
        self._moves: list[tuple[Nanos, int]] = []
        self._link_free_at: Nanos = 0
        self._events: list[Event] = []
        self._now: float = -inf
        self._last_seq = -1
        self._turn = 0

    # What happened

    def submit(self, request: Request, now: Nanos) -> None:
        """A request arrived.

        It supersedes an older request of its session that still waits for its prefix, unless
        :attr:`~takt.core.request.Request.supersede` says otherwise.

        Raises:
            UsageError: No such model, layout or priority, or the request's number does not rise.
        """
        queue = self._check(request)
        self._pass(now)
        self._last_seq = request.seq
        self._events.append(_submitted(request, now))
        self._live[request.seq] = request
        older = self._newest_of.get(request.session)
        if older is not None and request.supersede and older.phase is _QUEUED:
            self._withdraw(older, Phase.SUPERSEDED, now)
        if request.priority:
            request.order = request.due + request.priority * queue.model.slo
        request.steps_left = queue.steps
        if self._refuses_late:
            request.expires = min(request.expires, request.latest)
        self._wait(request, queue, now)
        if request.phase is _QUEUED:
            self._newest_of[request.session] = request

    def cancel(self, seq: int, now: Nanos) -> None:
        """Nobody wants the answer to request ``seq`` any more; one that has ended is left alone.

        A running launch goes on; the row is computed for nothing.
        """
        self._pass(now)
        self._events.append(Cancel(now, seq))
        request = self._live.get(seq)
        if request is None:
            return
        if request.phase in _WAITING:
            self._withdraw(request, Phase.CANCELLED, now)
        else:
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
        launch = self._running.pop(lane, None)
        if launch is None:
            raise InvariantError(f"a launch ended on {lane}, which runs none")
        if self._view.forecast is not None:
            self._view.forecast.finish(lane, now)
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
        if self._moves:
            self._end_moves(now)
        if self._expiries.earliest <= now:
            self._expire(now)
        if self._yields.earliest <= now or self._regains.earliest <= now:
            self._rerank(now)
        proposed = self._formation.decide(self._view, now)
        launches, asked = proposed
        if launches:
            launches, asked = self._start_proposed(proposed, now)
        wake_at = self._wake_at(asked)
        self._events.append(Decide(now, launches, wake_at))
        return Decision(launches, wake_at)

    def take_events(self) -> list[Event]:
        """Events since the last call, in order. A driver takes them after every decision."""
        events, self._events = self._events, []
        return events

    def take_over(self, older: Scheduler, switched: Switched) -> None:
        """Go on where ``older`` ends; for a scheduler that nothing has happened to.

        Its models, profile and formation are its own: they never change under requests.

        Raises:
            InvariantError: Something is under way in ``older``, time would go back, or something
                has happened here.
        """
        if not older.is_idle or self._last_seq >= 0 or self._events:
            raise InvariantError("a scheduler takes over with nothing under way, and only first")
        older._pass(switched.at)
        self._now, self._last_seq = older._now, older._last_seq
        self._link_free_at = older._link_free_at
        self._events = [*older.take_events(), switched]

    @property
    def waiting(self) -> int:
        """Requests that wait for a stage."""
        return sum(len(queue) for queues in self._view.queues for queue in queues)

    @property
    def unfinished(self) -> int:
        """Requests that have no outcome yet."""
        return len(self._live)

    @property
    def is_idle(self) -> bool:
        """Whether every request has its outcome and no launch runs."""
        return not self._live and not self._running

    # How

    def _queue(self, model: Model, stage: Stage) -> Queue:
        """An empty queue; its service is what the formation expects from its stage on."""
        formation = self._formation
        service = [
            sum(formation.expected(self._profile, model, layout)[stage:])
            for layout in range(len(model.holds))
        ]
        stepping = self._group.stepping
        steps = model.steps if stepping is not None and stepping.is_split else 1
        return Queue(model, stage, tuple(service), steps)

    def _check(self, request: Request) -> Queue:
        """The queue that ``request`` will wait in, if it may be submitted."""
        model = self._models.get(request.model)
        if model is None:
            known = ", ".join(sorted(self._models))
            raise UsageError(f"no model {request.model!r} on this device; it serves: {known}")
        if not 0 <= request.layout < len(model.holds):
            raise UsageError(
                f"model {model.name!r} has layouts 0 to {len(model.holds) - 1},"
                f" got {request.layout}",
            )
        if not 0 <= request.priority <= MOST_PRIORITY:
            raise UsageError(f"priority must lie in 0 to {MOST_PRIORITY}, got {request.priority}")
        if request.seq <= self._last_seq:
            raise UsageError(f"request numbers must rise, got {request.seq} after {self._last_seq}")
        return self._queues[_PREFIX][request.model]

    def _pass(self, now: Nanos) -> None:
        if now < self._now:
            raise InvariantError(f"time went back from {self._now} to {now}")
        self._now = now

    def _queue_of(self, request: Request) -> Queue:
        stage = _WAITING[request.phase]
        return self._queues[stage and stage + request.home][request.model]

    def _service_of(self, request: Request, queue: Queue) -> Nanos:
        """Expected time from now to the answer of who waits in ``queue``, if it started now."""
        return queue.service[request.layout] * request.steps_left // queue.steps

    def _wait(self, request: Request, queue: Queue, now: Nanos) -> None:
        """Put a QUEUED or READY request into its queue, or refuse it if it has expired."""
        if now >= request.expires:
            self._end(request, Phase.EXPIRED, now)
            return
        queue.add(request)
        self._expiries.set(request.expires, request, queue)
        if self._may_yield:
            hopeless_from = request.latest - self._service_of(request, queue) + 1
            self._yields.set(hopeless_from if hopeless_from > now else now, request, queue)

    def _withdraw(self, request: Request, phase: Phase, now: Nanos) -> None:
        """Take a waiting request out of its queue; it has ended."""
        self._queue_of(request).remove(request)
        self._end(request, phase, now)

    def _leave(self, request: Request, launch: Launch, now: Nanos, failed: bool) -> None:
        """A row of a finished launch goes to its next phase."""
        if failed:
            self._end(request, Phase.FAILED, now)
        elif launch.lane.stage is _PREFIX:
            self._leave_prefix(request, launch, now)
        elif request.steps_left > 1:
            request.steps_left -= 1
            self._get_ready(request, now)
        else:
            self._end(request, _SERVED, now)

    def _leave_prefix(self, request: Request, launch: Launch, now: Nanos) -> None:
        if self._models[launch.model].single_pass:
            self._end(request, _SERVED, now)
            return
        source = launch.lane.device
        request.home = self._group.home[source]
        if request.home != source:
            self._begin_move(request, source, now)
            return
        self._get_ready(request, now)

    def _get_ready(self, request: Request, now: Nanos) -> None:
        """Let a request wait for its denoise launch, where its key/value cache is."""
        request.move(_READY)
        self._wait(request, self._queues[_DENOISE + request.home][request.model], now)

    def _begin_move(self, request: Request, source: int, now: Nanos) -> None:
        """Send a key/value cache to its home; caches on the way there queue for one link."""
        request.move(Phase.MOVING)
        time = self._profile.transfer(self._models[request.model].architecture, request.layout)
        self._link_free_at = until = max(self._link_free_at, now) + time
        self._moves.append((until, request.seq))
        self._events.append(Moved(now, request.seq, source, request.home, until))

    def _end_moves(self, now: Nanos) -> None:
        """Let requests wait whose caches have arrived, in the order in which they left."""
        arrived = bisect_right(self._moves, now, key=_until)
        for _, seq in self._moves[:arrived]:
            request = self._live.get(seq)
            if request is not None:
                self._get_ready(request, now)
        del self._moves[:arrived]

    def _end(self, request: Request, phase: Phase, now: Nanos) -> None:
        request.move(phase)
        del self._live[request.seq]
        if self._newest_of.get(request.session) is request:
            del self._newest_of[request.session]
        self._events.append(Ended(now, request.seq, phase))

    def _start_proposed(self, decision: Decision, now: Nanos) -> Decision:
        """Start what the formation proposed; in a group it proposes for one device at a time."""
        launches, _ = decision
        for launch in launches:
            self._start(launch, now)
        if not launches or self._is_alone:
            return decision
        rest = self._start_proposed(self._formation.decide(self._view, now), now)
        return Decision(launches + rest.launches, rest.wake_at)

    def _start(self, launch: Launch, now: Nanos) -> None:
        lane, model, requests, _, _, _ = launch
        if lane in self._running:
            raise InvariantError(f"{lane} was given a launch while it runs one")
        self._running[lane] = launch
        device, stage = lane
        queue = self._queues[stage and stage + device][model]
        self._turn = queue.turn = self._turn + 1
        if self._view.forecast is not None:
            self._view.forecast.start(lane, launch.work(queue.model.architecture), now)
        started = _STARTED[stage]
        for _, _, request in queue.take_head(requests):
            request.move(started)

    def _expire(self, now: Nanos) -> None:
        for _, request, queue in self._expiries.ring(now):
            queue.remove(request)
            self._end(request, Phase.EXPIRED, now)

    def _rerank(self, now: Nanos) -> None:
        """Let requests that have become hopeless yield, and those that yielded one slo regain."""
        for since, request, queue in self._yields.ring(now):
            queue.yield_place(request)
            regains = since + queue.model.slo
            if self._may_regain(request, queue, regains):
                self._regains.set(regains, request, queue)
        if self._regains.earliest <= now:
            for _, request, queue in self._regains.ring(now):
                queue.regain_place(request)

    def _may_regain(self, request: Request, queue: Queue, now: Nanos) -> bool:
        """Whether the answer to a request that regains its order at ``now`` is worth something.

        Else it would regain its order only to make feasible requests late in their turn.
        """
        return now + self._service_of(request, queue) < request.expires

    def _wake_at(self, asked: Nanos | None) -> Nanos | None:
        """The earliest of the formation's wish, an expiry while waiting, and the end of a move."""
        if self._moves:
            asked = self._moves[0][0] if asked is None else min(asked, self._moves[0][0])
        expires = self._expiries.next()
        return expires if asked is None or (expires is not None and expires < asked) else asked


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
        request.priority,
    )


def _until(move: tuple[Nanos, int]) -> Nanos:
    return move[0]
