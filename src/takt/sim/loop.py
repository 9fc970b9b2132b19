"""Drives the scheduler in virtual time.

The loop goes from instant to instant. All events of one instant are taken in, arrivals before
completions, and only then is each device asked what to run; the worker's loop keeps the same
order. Launches take their time from the device's profile through
:class:`~takt.core.profile.CoRun`, so an end moves when a co-runner starts or ends.

Start reading at :meth:`_Loop.run`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TypeAlias

from takt.core.attainment import RequestRecord, StageTimes
from takt.core.events import Event
from takt.core.launch import Lane
from takt.core.profile import CoRun
from takt.core.request import Phase, Request
from takt.core.timeline import Outcome, Timeline
from takt.core.trace import Setup
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.network import CHUNK_BYTES
from takt.sim.robot import Ask, SimulatedRobot
from takt.units import Nanos

__all__ = ["DeviceRun", "Run", "simulate"]

_Action: TypeAlias = Callable[[Nanos], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRun:
    """What one device did."""

    busy: dict[Lane, Nanos]
    """Time each lane spent on launches."""
    rows: dict[str, list[int]]
    """Rows of each launch, by stage."""
    events: list[Event] = field(default_factory=list[Event])
    """Everything that happened to its scheduler, when asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What happened in a simulation between its warm-up and its end."""

    records: list[RequestRecord]
    """One record per request sent after the warm-up."""
    starved: dict[str, int]
    """Control ticks without an action after the warm-up, by robot."""
    ticks: dict[str, int]
    """Control ticks after the warm-up, by robot."""
    devices: dict[str, DeviceRun]
    duration: Nanos
    """Time reported on."""
    length: Nanos
    """The whole run, warm-up and last answers included."""


def simulate(
    fleet: Fleet,
    *,
    duration: Nanos,
    warm_up: Nanos = 0,
    seed: int = 0,
    keep_events: bool = False,
) -> Run:
    """Run ``fleet`` in virtual time.

    Robots send until ``warm_up + duration``; the run goes on until every request has its outcome.

    Args:
        fleet: What to simulate.
        duration: Time that is reported on.
        warm_up: Time before it, whose requests are not recorded.
        seed: Seed of phases, jitter and network delays. Equal seeds give equal results.
        keep_events: Keep each device's events, for a trace.
    """
    return _Loop(fleet, warm_up, warm_up + duration, seed, keep_events).run()


@dataclass(slots=True)
class _Pending:
    """A request under way."""

    robot: SimulatedRobot
    ask: Ask
    sent: Nanos
    uplink: Nanos
    slo: Nanos


class _Device:
    """A scheduler and the launches that run for it."""

    def __init__(self, setup: Setup, keep_events: bool) -> None:
        self.scheduler = setup.scheduler()
        self.timeline = Timeline()
        self.events: list[Event] = []
        self.next_at: Nanos | None = None
        self._keep_events = keep_events
        self._architecture = {model.name: model.architecture for model in setup.models}
        self._running: CoRun[Lane] = CoRun(setup.profile)
        self._wake_at: Nanos | None = None

    def finish_launches(self, now: Nanos) -> bool:
        """Tell the scheduler of launches that end at ``now``; whether there were any."""
        any_ended = False
        while (end := self._running.next_end()) is not None and end[0] <= now:
            self._running.finish(end[1], now)
            self.scheduler.finish(end[1], now)
            any_ended = True
        return any_ended

    def decide(self, now: Nanos) -> list[Outcome]:
        """Start what the scheduler decides; returns the requests that have ended since."""
        decision = self.scheduler.decide(now)
        for launch in decision.launches:
            work = launch.work(self._architecture[launch.model])
            self._running.start(launch.lane, work, now)
        self._wake_at = decision.wake_at
        self._set_next()
        events = self.scheduler.take_events()
        if self._keep_events:
            self.events += events
        add = self.timeline.add
        return [outcome for event in events if (outcome := add(event)) is not None]

    def _set_next(self) -> None:
        end = self._running.next_end()
        self.next_at = self._wake_at
        if end is not None and (self.next_at is None or end[0] < self.next_at):
            self.next_at = end[0]


class _Loop:
    def __init__(
        self, fleet: Fleet, warm_up: Nanos, stop: Nanos, seed: int, keep_events: bool
    ) -> None:
        self._fleet = fleet
        self._warm_up = warm_up
        self._stop = stop
        self._allowance = fleet.network.allowance()
        self._devices = {name: _Device(setup, keep_events) for name, setup in fleet.devices.items()}
        self._robots = [
            SimulatedRobot(f"{group.model}-{number}", group, seed)
            for group, number in _numbered(fleet)
        ]
        self._slo = {robot.name: fleet.model(robot.group).slo for robot in self._robots}
        self._sending = 0
        self._agenda: list[tuple[Nanos, int, _Action]] = []
        self._number = 0
        self._seq = 0
        self._pending: dict[int, _Pending] = {}
        self._touched: dict[str, _Device] = {}
        self._records: list[RequestRecord] = []
        self._starved_before: dict[str, int] = {}
        self._ticks_before: dict[str, int] = {}

    def run(self) -> Run:
        """Go from instant to instant until nothing is left to happen."""
        self._at(self._warm_up, self._begin_report)
        for robot in self._robots:
            self._ask_at(robot, robot.first_ask())
        now = 0
        while (instant := self._next_instant()) is not None:
            now = instant
            self._take_in(now)
            touched, self._touched = self._touched, {}
            for device in touched.values():
                for outcome in device.decide(now):
                    self._answer(outcome, now)
        return self._report(now)

    def _next_instant(self) -> Nanos | None:
        instants = [d.next_at for d in self._devices.values() if d.next_at is not None]
        if self._agenda:
            instants.append(self._agenda[0][0])
        return min(instants, default=None)

    def _take_in(self, now: Nanos) -> None:
        """Let everything of this instant happen: arrivals, then completions, then wake-ups."""
        while self._agenda and self._agenda[0][0] == now:
            heappop(self._agenda)[2](now)
        for name, device in self._devices.items():
            if device.next_at is not None and device.next_at <= now:
                device.finish_launches(now)
                self._touched[name] = device

    def _at(self, instant: Nanos, action: _Action) -> None:
        # The number keeps actions of one instant in the order in which they were arranged.
        self._number += 1
        heappush(self._agenda, (instant, self._number, action))

    # Robots

    def _ask_at(self, robot: SimulatedRobot, instant: Nanos | None) -> None:
        if instant is not None and instant < self._stop:
            self._at(instant, lambda now: self._ask(robot, now))

    def _ask(self, robot: SimulatedRobot, now: Nanos) -> None:
        ask = robot.ask(now)
        group = robot.group
        self._sending += 1  # until it arrives: this many robots share the air
        uplink = self._fleet.network.up(group.observation_bytes, self._sending, robot.rng)
        pending = _Pending(robot, ask, now, uplink, self._slo[robot.name])
        self._at(now + uplink, lambda at: self._arrive(pending, at))
        self._ask_at(robot, ask.next_ask)

    def _arrive(self, pending: _Pending, now: Nanos) -> None:
        group = pending.robot.group
        self._sending -= 1
        self._seq += 1
        self._pending[self._seq] = pending
        promise = now + pending.slo - self._allowance
        due = promise
        if group.deadline == "queue":
            due = now + pending.ask.dry_at - pending.sent - self._allowance
        request = Request(
            seq=self._seq,
            model=group.model,
            session=pending.robot.name,
            arrival=now,
            due=due,
            promise=promise,
            expires=due + pending.slo,
            supersede=group.supersede,
        )
        device = self._devices[group.device]
        device.scheduler.submit(request, now)
        self._touched[group.device] = device

    def _answer(self, outcome: Outcome, now: Nanos) -> None:
        pending = self._pending.pop(outcome.seq)
        robot = pending.robot
        downlink = self._fleet.network.down(CHUNK_BYTES, self._sending + 1, robot.rng)
        answered = now + downlink if outcome.phase is Phase.SERVED else None
        self._record(pending, outcome, answered, downlink)
        first = pending.ask.first_timestep
        if answered is not None:
            self._at(answered, lambda at: self._ask_at(robot, robot.receive(first, at)))
        else:
            self._at(now + downlink, lambda at: self._ask_at(robot, robot.refused(at)))

    # The report

    def _begin_report(self, now: Nanos) -> None:
        for robot in self._robots:
            robot.catch_up(now)
            self._starved_before[robot.name] = robot.starved_ticks
            self._ticks_before[robot.name] = robot.ticks

    def _record(
        self, pending: _Pending, outcome: Outcome, answered: Nanos | None, downlink: Nanos
    ) -> None:
        if pending.sent < self._warm_up:
            return
        stages = StageTimes(
            uplink=pending.uplink,
            queue=outcome.queue,
            prefix=outcome.prefix,
            wait=outcome.wait,
            denoise=outcome.denoise,
            reply=downlink,
        )
        self._records.append(
            RequestRecord(
                robot=pending.robot.name,
                model=pending.robot.group.model,
                sent=pending.sent,
                slo=pending.slo,
                due=pending.ask.dry_at,
                answered=answered,
                outcome=outcome.phase.value,
                stages=None if answered is None else stages,
            )
        )

    def _report(self, length: Nanos) -> Run:
        for robot in self._robots:
            robot.catch_up(self._stop)
        robots = {robot.name: robot for robot in self._robots}
        return Run(
            records=self._records,
            starved={n: r.starved_ticks - self._starved_before[n] for n, r in robots.items()},
            ticks={n: r.ticks - self._ticks_before[n] for n, r in robots.items()},
            devices={
                name: DeviceRun(
                    busy=device.timeline.busy,
                    rows={s.name.lower(): rows for s, rows in device.timeline.rows.items()},
                    events=device.events,
                )
                for name, device in self._devices.items()
            },
            duration=self._stop - self._warm_up,
            length=length,
        )


def _numbered(fleet: Fleet) -> list[tuple[RobotGroup, int]]:
    """Robots of all groups, numbered within their model."""
    count: dict[str, int] = {}
    robots: list[tuple[RobotGroup, int]] = []
    for group in fleet.robots:
        for _ in range(group.count):
            robots.append((group, count.get(group.model, 0)))
            count[group.model] = count.get(group.model, 0) + 1
    return robots
