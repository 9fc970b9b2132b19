"""The two drivers of the scheduler, given the same happenings: a worker and a simulated device.

Both give the trace of what they did. The worker's side is what ships: the loop, fed through its
inbox, with a manual clock and lanes that take their time from the profile. The simulator's side is
the device that ``takt simulate`` runs.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from takt.core.launch import Lane
from takt.core.request import Request, Stage
from takt.core.scheduler import Scheduler
from takt.core.trace import Setup, trace_lines
from takt.link.messages import Released, Reply
from takt.runtime.events import Arrived, DrivingOffered, LoopEvent, SetupChanged
from takt.runtime.inbox import Inbox
from takt.runtime.loop import WorkerLoop
from takt.sim.loop import _Agenda, _Device
from takt.testing.clock import ManualClock
from takt.testing.gateway import FakeGateway
from takt.testing.lanes import FakeLanes
from takt.testing.network import fake_model

__all__ = ["EPOCH", "Arrival", "Happenings", "simulated", "worked"]

EPOCH = 7
NUM_SLOTS = 256

_ARRIVAL, _CANCEL, _OFFER = range(3)


class Arrival(NamedTuple):
    """A request that arrives; the first one gets number 1, and so on."""

    at: int
    model: str = "pi0"
    session: str = "arm"
    due_in: int = 100
    promise_in: int = 100
    expires_in: int = 200
    layout: int = 0
    supersede: bool = True


@dataclass(frozen=True, kw_only=True)
class Happenings:
    """What happens to a device, besides what it does itself."""

    arrivals: Sequence[Arrival]
    """In the order in which they happen."""
    cancels: Mapping[int, int] = field(default_factory=dict)
    """Instant at which a request's client goes away, by the request's number."""
    failing: Mapping[int, Stage] = field(default_factory=dict)
    """Stage in which a request's row cannot be computed, by the request's number."""
    offers: Sequence[tuple[int, Setup]] = ()
    """Other ways to drive the same models, and when each is offered; in that order."""


# The simulated device


def simulated(setup: Setup, happenings: Happenings) -> list[str]:
    """The trace of the simulator's device."""
    agenda = _Agenda()
    answered: set[int] = set()
    device = _Device(setup, agenda, lambda outcome, _: answered.add(outcome.seq), True)
    _let_fail(device._scheduler, happenings.failing)
    switch = _Switch(device, happenings.failing)
    for instant, offered in happenings.offers:
        agenda.add(instant, switch.offer, offered)
    for seq, arrival in enumerate(happenings.arrivals, 1):
        agenda.add(arrival.at, device.submit, _request(seq, arrival))
    for seq, instant in _cancels(happenings):
        agenda.add(instant, partial(_cancel, device, answered), seq)
    agenda.play()
    return list(trace_lines(setup, device.events))


def _request(seq: int, arrival: Arrival) -> Request:
    at = arrival.at
    return Request(
        seq=seq,
        model=arrival.model,
        session=f"{EPOCH:x}/{arrival.session}",
        arrival=at,
        due=at + arrival.due_in,
        promise=at + arrival.promise_in,
        expires=at + arrival.expires_in,
        layout=arrival.layout,
        supersede=arrival.supersede,
    )


def _cancels(happenings: Happenings) -> list[tuple[int, int]]:
    """Cancels in the order in which they happen; nobody goes away before having come."""
    arrivals = happenings.arrivals
    cancels = [
        (seq, max(instant, arrivals[seq - 1].at))
        for seq, instant in happenings.cancels.items()
        if 1 <= seq <= len(arrivals)
    ]
    return sorted(cancels, key=lambda cancel: cancel[::-1])


def _cancel(device: _Device, answered: set[int], seq: int, now: int) -> None:
    if seq not in answered:
        device._scheduler.cancel(seq, now)
        device._agenda.add_last(device._decide)


class _Switch:
    """Lets a simulated device change its formation when it decides with nothing under way."""

    def __init__(self, device: _Device, failing: Mapping[int, Stage]) -> None:
        self._device = device
        self._failing = failing
        self._true_decide = device._decide
        self._offered: Setup | None = None
        device._decide = self._decide  # type: ignore[method-assign]

    def offer(self, setup: Setup, now: int) -> None:
        del now
        self._offered = setup
        self._device._agenda.add_last(self._device._decide)

    def _decide(self, now: int) -> None:
        if self._offered is not None and self._device._scheduler.is_idle:
            scheduler = self._offered.successor(self._device._scheduler, now)
            _let_fail(scheduler, self._failing)
            self._device._scheduler = scheduler
            self._offered = None
        self._true_decide(now)


def _let_fail(scheduler: Scheduler, failing: Mapping[int, Stage]) -> None:
    scheduler.finish = partial(_finish, scheduler, failing)  # type: ignore[method-assign]


def _finish(
    scheduler: Scheduler,
    failing: Mapping[int, Stage],
    lane: Lane,
    now: int,
    failed: Collection[int] = (),
) -> None:
    del failed
    launch = scheduler._view.running[lane]
    failed = [seq for seq in launch.requests if failing.get(seq) is lane.stage]
    Scheduler.finish(scheduler, lane, now, failed)


# The worker


def worked(
    setup: Setup,
    happenings: Happenings,
    *,
    loop_class: type[WorkerLoop] = WorkerLoop,
    lanes_class: type[FakeLanes] = FakeLanes,
    disturb: Callable[[list[LoopEvent]], list[LoopEvent]] = list,
) -> list[str]:
    """The trace of the worker's loop.

    Args:
        setup: How the device is scheduled.
        happenings: What happens to it.
        loop_class: A loop with a fault, to see that it shows.
        lanes_class: Other lanes that take their time from the profile.
        disturb: Changes the order in which the events of an instant reach the loop.
    """
    return _Worker(setup, happenings, loop_class, lanes_class).run(disturb)


class _Worker:
    def __init__(
        self,
        setup: Setup,
        happenings: Happenings,
        loop_class: type[WorkerLoop],
        lanes_class: type[FakeLanes],
    ) -> None:
        self.clock = ManualClock()
        self.lanes = lanes_class(
            setup.costs(),
            self.clock.now,
            physical=setup.group.physical,
            failing=happenings.failing,
        )
        self.trace: list[str] = []
        self.loop = loop_class(self.lanes, trace=self.trace.extend)
        self.inbox: Inbox[LoopEvent] = Inbox()
        self.models = {model.name: fake_model(model, kv_slots=NUM_SLOTS) for model in setup.models}
        self.gateway = FakeGateway(epoch=EPOCH, num_slots=NUM_SLOTS)
        self.arrived: dict[int, Arrived] = {}
        self.open: set[object] = set()
        self.wake_at: int | None = None
        self.loop._take_in(SetupChanged(setup, self.models), 0)
        self.loop._change_setup(0)
        self.agenda = [
            *((arrival.at, _ARRIVAL, seq) for seq, arrival in enumerate(happenings.arrivals, 1)),
            *((instant, _CANCEL, seq) for seq, instant in _cancels(happenings)),
            *((instant, _OFFER, place) for place, (instant, _) in enumerate(happenings.offers)),
        ]
        self.agenda.sort(key=lambda entry: entry[0])
        self.happenings = happenings

    def run(self, disturb: Callable[[list[LoopEvent]], list[LoopEvent]]) -> list[str]:
        while (instant := self.next_instant()) is not None:
            self.clock.advance(instant - self.clock.now())
            self.post(instant)
            events = self.inbox.take()
            if events or instant == self.wake_at:
                self.step(disturb(events))
        self.inbox.close()
        assert self.loop.is_idle
        return self.trace

    def next_instant(self) -> int | None:
        instants = [self.lanes.next_end(), self.wake_at]
        if self.agenda:
            instants.append(self.agenda[0][0])
        return min((instant for instant in instants if instant is not None), default=None)

    def post(self, now: int) -> None:
        """Leave everything that happens now in the inbox."""
        while self.agenda and self.agenda[0][0] == now:
            _, kind, seq = self.agenda.pop(0)
            if kind == _OFFER:
                self.inbox.post(DrivingOffered(self.happenings.offers[seq][1]))
            elif kind == _ARRIVAL:
                self.arrive(seq)
            elif self.arrived[seq].submit.ref in self.open:
                self.inbox.post(self.gateway.cancel(self.arrived[seq].submit.ref))
        for completed in self.lanes.take_ended():
            self.inbox.post(completed)

    def arrive(self, seq: int) -> None:
        at, model, *rest = self.happenings.arrivals[seq - 1]
        fields = dict(zip(Arrival._fields[2:], rest, strict=True))
        arrived = self.gateway.arrive(self.models[model], at, **fields)  # type: ignore[arg-type]
        self.arrived[seq] = arrived
        self.open.add(arrived.submit.ref)
        self.inbox.post(arrived)

    def step(self, events: list[LoopEvent]) -> None:
        self.wake_at = self.loop.step(events, self.clock.now()).wake_at
        for _, message in self.loop.take_messages():
            self.open.discard(message.ref)  # type: ignore[union-attr]
            if isinstance(message, Reply):
                self.gateway.table.reply(message.ref, link=1)
            elif isinstance(message, Released):
                self.gateway.table.release(message.ref, link=1)
