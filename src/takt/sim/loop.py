"""Drives the scheduler in virtual time.

One agenda holds everything that will happen. Within an instant arrivals come first, then
completions and wake-ups, and only when all are in is each device asked what to run; the worker's
loop keeps the same order. Launches take their time from the device's profile through
:class:`~takt.core.profile.CoRun`, so an end moves when a co-runner starts or ends.

Start reading at :meth:`_Loop.run`, then follow a request: ``_ask``, ``_arrive``, ``_answer``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, NamedTuple, TypeVar

from takt.core.attainment import RequestRecord, StageTimes
from takt.core.events import Event
from takt.core.launch import Lane, Launch
from takt.core.profile import CoRun
from takt.core.request import ENDED, Phase, Request
from takt.core.timeline import Outcome, Timeline
from takt.core.trace import Setup
from takt.errors import UsageError
from takt.session.timing import Declared, resolve_timing
from takt.sim.fleet import Fleet
from takt.sim.network import CHUNK_BYTES, Way
from takt.sim.robot import Ask, SimulatedRobot
from takt.units import SECOND, Nanos

__all__ = ["DeviceRun", "Run", "simulate"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRun:
    """What one device did in the whole run, warm-up and last answers included."""

    busy: dict[Lane, Nanos]
    """Time each lane spent on launches; a lane that ran none is absent."""
    rows: dict[str, list[int]]
    """Rows of each launch, by stage."""
    events: list[Event] = field(default_factory=list[Event])
    """Everything that happened to its scheduler, when asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What happened in a simulation between its warm-up and its end."""

    fleet: Fleet
    """What was simulated."""
    seed: int
    records: list[RequestRecord]
    """One record per request sent after the warm-up, in the order of their outcomes."""
    groups: dict[str, str]
    """Name of each robot's group, by robot."""
    starved: dict[str, int]
    """Control ticks without an action after the warm-up, by robot."""
    ticks: dict[str, int]
    """Control ticks after the warm-up, by robot. A robot has none before it is switched on."""
    devices: dict[str, DeviceRun]
    warm_up: Nanos
    """Time before the time reported on."""
    duration: Nanos
    """Time reported on."""
    length: Nanos
    """The whole run: warm-up, duration, and the time until the last answer was at its robot."""


def simulate(
    fleet: Fleet,
    *,
    duration: Nanos,
    warm_up: Nanos = 0,
    seed: int = 0,
    keep_events: bool = False,
    progress: Callable[[Nanos], None] | None = None,
) -> Run:
    """Run ``fleet`` in virtual time.

    Robots send until ``warm_up + duration``; the run goes on until every request has its outcome.

    Args:
        fleet: What to simulate.
        duration: Time that is reported on.
        warm_up: Time before it, whose requests are not recorded.
        seed: Seed of phases, jitter and network delays. Equal seeds give equal results.
        keep_events: Keep each device's events, for a trace.
        progress: Told the virtual time once per virtual second.

    Raises:
        UsageError: ``duration`` is not positive, or ``warm_up`` is negative.
    """
    if duration <= 0:
        raise UsageError(f"duration must be positive, got {duration} ns")
    if warm_up < 0:
        raise UsageError(f"warm_up must be at least 0, got {warm_up} ns")
    return _Loop(fleet, warm_up, duration, seed, keep_events).run(progress)


_NOTHING_DECLARED = Declared()
_OUTCOME = {phase: phase.value for phase in ENDED}

_LEAST_FACTOR = 0.5
"""However widely launches are spread, none is quicker than half its time."""

# What comes first within an instant.
_ARRIVALS, _ENDS = range(2)


class _Agenda:
    """What is to happen, in the order in which it will."""

    def __init__(self) -> None:
        self._entries: list[tuple[Nanos, int, int, Callable[[Any, Nanos], None], Any]] = []
        self._numbers = count()
        self._last: list[Callable[[Nanos], None]] = []

    def add(
        self,
        instant: Nanos,
        action: Callable[[T, Nanos], None],
        subject: T,
        order: int = _ARRIVALS,
    ) -> None:
        """Let ``action`` happen to ``subject`` at ``instant``."""
        # The number keeps the rest of the order: what was arranged first happens first.
        heappush(self._entries, (instant, order, next(self._numbers), action, subject))

    def add_last(self, action: Callable[[Nanos], None]) -> None:
        """Let ``action`` happen once, when everything else of the present instant has happened."""
        if action not in self._last:
            self._last.append(action)

    def play(self) -> None:
        """Let everything happen, and what comes of it."""
        entries, last = self._entries, self._last
        while entries:
            now, _, _, action, subject = heappop(entries)
            action(subject, now)
            if last and not (entries and entries[0][0] == now):
                for decide in last:
                    decide(now)
                last.clear()


def _varying(spread: float, rng: Random) -> Callable[[Nanos], Nanos] | None:
    """What a launch takes this time, from its time in the profile; None: just that."""
    if not spread:
        return None
    return lambda time: max(1, round(time * max(_LEAST_FACTOR, rng.gauss(1.0, spread))))


class _Device:
    """A scheduler and the launches that run for it."""

    def __init__(
        self,
        setup: Setup,
        agenda: _Agenda,
        on_outcome: Callable[[Outcome, Nanos], None],
        keep_events: bool,
        vary: Callable[[Nanos], Nanos] | None = None,
    ) -> None:
        self._vary = vary
        self.timeline = Timeline()
        self.events: list[Event] = []
        self._scheduler = setup.scheduler()
        self._agenda = agenda
        self._on_outcome = on_outcome
        self._keep_events = keep_events
        self._architecture = {model.name: model.architecture for model in setup.models}
        costs = self._costs = setup.costs()
        self._running: list[CoRun[Lane]] = [CoRun(costs) for _ in range(setup.group.num_physical)]
        self._running_on = [self._running[physical] for physical in setup.group.physical]
        # A device of its own need not be compared with others.
        is_alone = len(self._running) == 1
        self._find_next_end = self._running[0].next_end if is_alone else self._find_first_end
        self._next_end: tuple[Nanos, Lane] | None = None
        self._next_at: Nanos | None = None

    def submit(self, request: Request, now: Nanos) -> None:
        """A request arrived."""
        self._scheduler.submit(request, now)
        self._agenda.add_last(self._decide)

    def _decide(self, now: Nanos) -> None:
        """Start what the scheduler decides and hand on the requests that have ended."""
        launches, wake_at = self._scheduler.decide(now)
        if launches:
            self._start(launches, now)
        self._wake_up_at(wake_at)
        events = self._scheduler.take_events()
        if self._keep_events:
            self.events += events
        for outcome in self.timeline.add_all(events):
            self._on_outcome(outcome, now)

    def _start(self, launches: tuple[Launch, ...], now: Nanos) -> None:
        for launch in launches:
            work = launch.work(self._architecture[launch.model])
            running = self._running_on[launch.lane.device]
            if self._vary is None:
                running.start(launch.lane, work, now)
            else:
                running.start(launch.lane, work, now, self._vary(self._costs.solo(work)))
        self._next_end = self._find_next_end()

    def _wake_up_at(self, wake_at: Nanos | None) -> None:
        """Arrange the next end of a launch, or the instant the scheduler asked for."""
        end = self._next_end
        if end is not None and (wake_at is None or end[0] < wake_at):
            wake_at = end[0]
        if wake_at != self._next_at:
            self._next_at = wake_at
            if wake_at is not None:
                self._agenda.add(wake_at, _Device._wake_up, self, _ENDS)

    def _find_first_end(self) -> tuple[Nanos, Lane] | None:
        """The next end of a launch; of ends at one instant the first physical device's."""
        ends = [end for run in self._running if (end := run.next_end()) is not None]
        return min(ends, key=lambda end: end[0], default=None)

    def _wake_up(self, now: Nanos) -> None:
        """Tell the scheduler of launches that end at ``now``."""
        if now != self._next_at:
            return  # what this entry was made for has moved or gone
        end = self._next_end
        while end is not None and end[0] <= now:
            _, lane = end
            self._running_on[lane.device].finish(lane, now)
            self._scheduler.finish(lane, now)
            end = self._next_end = self._find_next_end()
        self._agenda.add_last(self._decide)


class _Terms(NamedTuple):
    """What a group's robots are promised, and what lies between them and the server."""

    slo: Nanos
    way: Way


@dataclass(slots=True)
class _Pending:
    """A request under way."""

    robot: SimulatedRobot
    ask: Ask
    sent: Nanos
    uplink: Nanos
    terms: _Terms
    is_served: bool = False
    """Whether its answer is a chunk, once there is one."""


class _Loop:
    """Robots and their network, around the devices."""

    def __init__(
        self, fleet: Fleet, warm_up: Nanos, duration: Nanos, seed: int, keep_events: bool
    ) -> None:
        self._fleet = fleet
        self._seed = seed
        self._warm_up = warm_up
        self._stop = warm_up + duration
        self._length = self._stop
        self._agenda = _Agenda()
        self._devices = {
            name: _Device(
                setup,
                self._agenda,
                self._answer,
                keep_events,
                _varying(fleet.spreads.get(name, 0.0), Random(f"{seed}/{name}/launches")),
            )
            for name, setup in fleet.devices.items()
        }
        self._robots = [
            SimulatedRobot(f"{group.name}-{number}", group, seed)
            for group in fleet.robots
            for number in range(group.count)
        ]
        way = Way(fleet.network)
        self._terms = {
            group.name: _Terms(
                fleet.model(group).slo, way if group.network is None else Way(group.network)
            )
            for group in fleet.robots
        }
        self._seq = 0
        self._pending: dict[int, _Pending] = {}
        self._records: list[RequestRecord] = []

    def run(self, progress: Callable[[Nanos], None] | None) -> Run:
        """Let the robots ask, and report on the time after the warm-up."""
        counts: list[dict[str, tuple[int, int]]] = []
        for instant in (self._warm_up, self._stop):
            self._agenda.add(instant, self._count_ticks, counts)
        if progress is not None:
            self._tell(progress, 0)
        for robot in self._robots:
            self._ask_at(robot, robot.first_ask())
        with _collector_paused():
            self._agenda.play()
        return self._report(*counts)

    def _tell(self, progress: Callable[[Nanos], None], now: Nanos) -> None:
        progress(now)
        if now + SECOND <= self._stop:
            self._agenda.add(now + SECOND, self._tell, progress)

    # A request: the robot asks, the observation arrives, the answer reaches the robot

    def _ask_at(self, robot: SimulatedRobot, instant: Nanos | None) -> None:
        if instant is not None and instant < self._stop:
            self._agenda.add(instant, self._ask, robot)

    def _ask(self, robot: SimulatedRobot, now: Nanos) -> None:
        ask = robot.ask(now)
        terms = self._terms[robot.group.name]
        way = terms.way
        way.num_sending += 1  # until it arrives
        uplink = way.network.up(robot.observation_bytes, way.num_sending, robot.uplink)
        pending = _Pending(robot, ask, now, uplink, terms)
        self._agenda.add(now + uplink, self._arrive, pending)
        self._ask_at(robot, ask.next_ask)

    def _arrive(self, pending: _Pending, now: Nanos) -> None:
        terms = pending.terms
        terms.way.num_sending -= 1
        self._seq += 1
        self._pending[self._seq] = pending
        group = pending.robot.group
        timing = resolve_timing(
            now,
            declared=self._declared(pending),
            slo=terms.slo,
            allowance=terms.way.allowance,
        )
        request = Request(
            seq=self._seq,
            model=group.model,
            session=pending.robot.name,
            arrival=now,
            due=timing.due,
            promise=timing.promise,
            expires=timing.expires,
            layout=group.layout,
            priority=group.priority,
            supersede=group.supersede,
        )
        self._devices[group.device].submit(request, now)

    def _declared(self, pending: _Pending) -> Declared:
        """What the robot says of its own time; the server resolves it as a door's session does."""
        if pending.robot.group.deadline == "slo":
            return _NOTHING_DECLARED
        return Declared(due_in=pending.ask.dry_at - pending.sent - pending.terms.way.allowance)

    def _answer(self, outcome: Outcome, now: Nanos) -> None:
        pending = self._pending.pop(outcome.seq)
        pending.is_served = outcome.phase is Phase.SERVED
        robot = pending.robot
        way = pending.terms.way
        downlink = way.network.down(CHUNK_BYTES, way.num_sending + 1, robot.downlink)
        self._agenda.add(now + downlink, self._receive, pending)
        if pending.sent >= self._warm_up:
            self._records.append(_record(pending, outcome, downlink))

    def _receive(self, pending: _Pending, now: Nanos) -> None:
        self._length = max(self._length, now)
        robot = pending.robot
        if pending.is_served:
            self._ask_at(robot, robot.receive(pending.ask.first_timestep, now))
        else:
            self._ask_at(robot, robot.refused(now))

    # The report

    def _count_ticks(self, counts: list[dict[str, tuple[int, int]]], now: Nanos) -> None:
        """Add the starved ticks and all ticks of each robot before ``now``."""
        for robot in self._robots:
            robot.catch_up(now)
        counts.append({robot.name: (robot.starved_ticks, robot.ticks) for robot in self._robots})

    def _report(self, before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> Run:
        return Run(
            fleet=self._fleet,
            seed=self._seed,
            records=self._records,
            groups={robot.name: robot.group.name for robot in self._robots},
            starved={name: after[name][0] - before[name][0] for name in after},
            ticks={name: after[name][1] - before[name][1] for name in after},
            devices={name: _device_run(device) for name, device in self._devices.items()},
            warm_up=self._warm_up,
            duration=self._stop - self._warm_up,
            length=self._length,
        )


@contextmanager
def _collector_paused() -> Generator[None]:
    """No search for reference cycles: a run makes none, and keeps all that it records."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _record(pending: _Pending, outcome: Outcome, downlink: Nanos) -> RequestRecord:
    """What the robot saw of one request."""
    _, phase, at, queue, prefix, wait, denoise = outcome
    stages = StageTimes(pending.uplink, queue, prefix, wait, denoise, downlink)
    return RequestRecord(
        robot=pending.robot.name,
        model=pending.robot.group.model,
        sent=pending.sent,
        slo=pending.terms.slo,
        due=pending.ask.dry_at,
        answered=at + downlink if pending.is_served else None,
        outcome=_OUTCOME[phase],
        stages=stages if pending.is_served else None,
    )


def _device_run(device: _Device) -> DeviceRun:
    return DeviceRun(
        busy=device.timeline.busy,
        rows={stage.name.lower(): rows for stage, rows in device.timeline.rows.items()},
        events=device.events,
    )
