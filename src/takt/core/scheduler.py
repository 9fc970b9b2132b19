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

from takt.core.alarms import Alarms
from takt.core.batching import View
from takt.core.disciplines import Discipline
from takt.core.events import Cancel, Decide, Ended, Event, Finish, Moved, Submit
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
        self._lateness = lateness
        self._service = {
            name: [formation.expected(profile, model, layout) for layout in range(len(model.holds))]
            for name, model in self._models.items()
        }
        self._profile = profile
        self._group = group = formation.group
        is_split = group.stepping is not None and group.stepping.is_split
        self._steps = {name: m.steps if is_split else 1 for name, m in self._models.items()}
        stages = [Stage.PREFIX, *[Stage.DENOISE] * len(group.home)]
        self._queues = [
            {
                name: Queue(model, stage, self._service_from(stage, name))
                for name, model in self._models.items()
            }
            for stage in stages
        ]
        self._view = View(
            profile=profile,
            discipline=discipline,
            queues=tuple(tuple(queues.values()) for queues in self._queues),
            forecast=CoRun(profile) if group.forecasts else None,
        )
        self._live: dict[int, Request] = {}
        self._queued_of: dict[str, Request] = {}
        self._expiries, self._yields, self._regains = Alarms(), Alarms(), Alarms()
        self._moves: list[tuple[Nanos, int]] = []
        self._link_free_at: Nanos = 0
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
            UsageError: No such model, layout or priority, or the request's number does not rise.
        """
        self._check(request)
        self._pass(now)
        self._last_seq = request.seq
        self._events.append(_submitted(request, now))
        self._live[request.seq] = request
        older = self._queued_of.get(request.session)
        if older is not None and request.supersede:
            self._withdraw(older, self._queue_of(older))
            self._end(older, Phase.SUPERSEDED, now)
        if request.priority:
            request.order = request.due + request.priority * self._models[request.model].slo
        request.steps_left = self._steps[request.model]
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
                self._withdraw(request, self._queue_of(request))
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
        proposed = self._start_proposed(now)
        wake_at = self._wake_at(proposed.wake_at)
        self._events.append(Decide(now, proposed.launches, wake_at))
        if wake_at == proposed.wake_at:
            return proposed
        return Decision(proposed.launches, wake_at)

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
        if not 0 <= request.priority <= MOST_PRIORITY:
            raise UsageError(f"priority must lie in 0 to {MOST_PRIORITY}, got {request.priority}")
        if request.seq <= self._last_seq:
            raise UsageError(f"request numbers must rise, got {request.seq} after {self._last_seq}")

    def _pass(self, now: Nanos) -> None:
        if self._now is not None and now < self._now:
            raise InvariantError(f"time went back from {self._now} to {now}")
        self._now = now

    def _queue_of(self, request: Request) -> Queue:
        stage = _WAITING[request.phase]
        return self._queues[stage and stage + request.home][request.model]

    def _service_from(self, stage: Stage, model: str) -> tuple[Nanos, ...]:
        """Expected time from the start of ``stage`` to the answer, by layout."""
        return tuple([sum(times[stage:]) for times in self._service[model]])

    def _service_of(self, request: Request) -> Nanos:
        """Expected time from now to the answer of a waiting request, if it started now."""
        prefix, denoise = self._service[request.model][request.layout]
        if request.phase is Phase.QUEUED:
            return prefix + denoise
        return denoise * request.steps_left // self._steps[request.model]

    def _wait(self, request: Request, now: Nanos) -> None:
        """Put a QUEUED or READY request into its queue, or refuse it if it has expired."""
        if now >= request.expires:
            self._end(request, Phase.EXPIRED, now)
            return
        self._queue_of(request).add(request)
        request.wait += 1
        if request.phase is Phase.QUEUED:
            self._queued_of[request.session] = request
        self._expiries.set(request.expires, request)
        if self._lateness is Lateness.YIELD:
            hopeless_from = request.latest - self._service_of(request) + 1
            self._yields.set(max(now, hopeless_from), request)

    def _withdraw(self, request: Request, queue: Queue) -> None:
        """Take a waiting request out of its queue."""
        queue.remove(request)
        self._end_wait(request)

    def _end_wait(self, request: Request) -> None:
        request.wait += 1
        if self._queued_of.get(request.session) is request:
            del self._queued_of[request.session]

    def _leave(self, request: Request, launch: Launch, now: Nanos, failed: bool) -> None:
        """A row of a finished launch goes to its next phase."""
        if failed:
            self._end(request, Phase.FAILED, now)
        elif launch.lane.stage is Stage.PREFIX:
            self._leave_prefix(request, launch, now)
        elif request.steps_left > 1:
            request.steps_left -= 1
            request.move(Phase.READY)
            self._wait(request, now)
        else:
            self._end(request, Phase.SERVED, now)

    def _leave_prefix(self, request: Request, launch: Launch, now: Nanos) -> None:
        if self._models[launch.model].single_pass:
            self._end(request, Phase.SERVED, now)
            return
        source = launch.lane.device
        request.home = self._group.home[source]
        if request.home != source:
            self._begin_move(request, source, now)
            return
        request.move(Phase.READY)
        self._wait(request, now)

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
                request.move(Phase.READY)
                self._wait(request, now)
        del self._moves[:arrived]

    def _end(self, request: Request, phase: Phase, now: Nanos) -> None:
        request.move(phase)
        del self._live[request.seq]
        self._events.append(Ended(now, request.seq, phase))

    def _start_proposed(self, now: Nanos) -> Decision:
        """Start what the formation proposes; in a group it proposes for one device at a time."""
        decision = self._formation.decide(self._view, now)
        if not decision.launches:
            return decision
        for launch in decision.launches:
            self._start(launch)
        if len(self._group.home) == 1:
            return decision
        rest = self._start_proposed(now)
        return Decision(decision.launches + rest.launches, rest.wake_at)

    def _start(self, launch: Launch) -> None:
        if launch.lane in self._view.running:
            raise InvariantError(f"{launch.lane} was given a launch while it runs one")
        self._view.running[launch.lane] = launch
        self._turn += 1
        device, stage = launch.lane
        queue = self._queues[stage and stage + device][launch.model]
        queue.turn = self._turn
        if self._view.forecast is not None and self._now is not None:
            work = launch.work(queue.model.architecture)
            self._view.forecast.start(launch.lane, work, self._now)
        started = _STARTED[stage]
        for request in queue.take_head(launch.requests):
            self._end_wait(request)
            request.move(started)

    def _expire(self, now: Nanos) -> None:
        for _, request in self._expiries.ring(now):
            self._withdraw(request, self._queue_of(request))
            self._end(request, Phase.EXPIRED, now)

    def _rerank(self, now: Nanos) -> None:
        """Let requests that have become hopeless yield, and those that yielded one slo regain."""
        for since, request in self._yields.ring(now):
            self._queue_of(request).yield_place(request)
            regains = since + self._models[request.model].slo
            if self._may_regain(request, regains):
                self._regains.set(regains, request)
        for _, request in self._regains.ring(now):
            self._queue_of(request).regain_place(request)

    def _may_regain(self, request: Request, now: Nanos) -> bool:
        """Whether the answer to a request that regains its order at ``now`` is worth something.

        Else it would regain its order only to make feasible requests late in their turn.
        """
        return now + self._service_of(request) < request.expires

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
