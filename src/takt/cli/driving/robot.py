"""One simulated robot: when it asks, what it has left to execute, what became of its requests.

It runs the queue and the rules of :mod:`takt.robot`, like a real one. Control ticks are caught up
on when something happens, so a robot costs nothing in between. It reads no clock: its thread says
what time it is.

Two rules keep the figures honest. An observation is *sent* at the instant its schedule says, even
if the robot comes to it later, so a slow server cannot slow down the measurement of itself. And an
open-loop robot whose next observation falls due while an answer is awaited sends the newest when
it can; those it never came to are requests too, counted as superseded.

Start reading at :meth:`DrivenRobot.ask`.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from takt.cli.driving.outage import Outage
from takt.cli.driving.time_split import split_of
from takt.client.answer import ActionArray, Answer
from takt.core.attainment import OUTCOMES, RequestRecord
from takt.errors import ConfigError
from takt.robot.action_queue import ActionQueue
from takt.robot.replanning import ThresholdRule, time_until_dry
from takt.units import SECOND, Nanos

__all__ = ["Ask", "Behaviour", "Deadline", "DrivenRobot", "RobotView"]

Deadline: TypeAlias = Literal["queue", "slo"]
"""Where the server takes ``due`` from: the robot's own action queue, or the model's promise."""

_RECENT = 100
"""Answers that a view tells the latencies of."""
_MAX_HZ = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How robots of one model behave."""

    model: str
    """Model they ask, by the name reports use."""
    slo: Nanos
    """Promised time from sending to the answer being at the robot."""
    control_hz: float
    """Control ticks per second; each executes an action."""
    rate_hz: float | None = 2.0
    """Open loop: observations per second, whatever the answers do. None is closed loop."""
    threshold: float = 0.5
    """Closed loop: ask when the queue has drained to this share of a chunk."""
    deadline: Deadline = "queue"
    """What the server is told: when the queue runs dry, or nothing, so that the slo counts."""
    is_paced: bool = False
    """Whether the model says that it is a stand-in, whose launches wait and compute nothing."""

    def __post_init__(self) -> None:
        if self.slo <= 0:
            raise ConfigError(f"slo must be positive, got {self.slo} ns")
        for name in ("control_hz", "rate_hz"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= _MAX_HZ:
                raise ConfigError(f"{name} must lie above 0 and up to {_MAX_HZ:g}, got {value}")
        ThresholdRule(threshold=self.threshold)

    @property
    def tick(self) -> Nanos:
        """Time between two control ticks."""
        return round(SECOND / self.control_hz)

    @property
    def period(self) -> Nanos | None:
        """Time between two observations of an open-loop robot."""
        return None if self.rate_hz is None else round(SECOND / self.rate_hz)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """An observation that leaves now."""

    number: int
    """Counts the robot's observations from 0."""
    sent: Nanos
    """Instant its schedule said."""
    first_timestep: int
    """Timestep its chunk begins at."""
    dry_at: Nanos
    """Instant of the first control tick without an action, if no chunk comes before."""
    held: Nanos = 0
    """Time it was kept back after ``sent``, because an earlier answer was still awaited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotView:
    """A robot at one instant, for a person who looks on."""

    name: str
    model: str
    issued: int
    answered: int
    met: int
    on_time: int
    ticks: int
    starved_ticks: int
    remaining: int
    """Actions left to execute."""
    longest_chunk: int
    """Actions of the longest chunk so far; 0 before the first."""
    latencies: tuple[Nanos, ...]
    """Of the latest answers."""
    is_paced: bool = False
    """Whether nothing is computed for it."""
    is_away: bool = False
    """Whether it has no server."""


class DrivenRobot:
    """One robot. Its thread asks and answers; another one may look.

    Args:
        name: Its name in reports and at the server.
        behaviour: How it behaves.
        origin: Instant it is switched on.
        end: Instant from which on it sends nothing.
        counted_from: What it does before is no part of the figures, so that a fleet can settle;
            from ``origin`` on when None.
    """

    def __init__(
        self,
        name: str,
        behaviour: Behaviour,
        *,
        origin: Nanos,
        end: Nanos,
        counted_from: Nanos | None = None,
    ) -> None:
        self.name = name
        self.behaviour = behaviour
        self.records: list[RequestRecord] = []
        """Every request that is over."""
        self.errors: Counter[str] = Counter()
        """Requests without an answer, by the code of the reason."""
        self.outages: list[Outage] = []
        """Times without a server, uncounted ones included, in order."""
        self.stages: list[Mapping[str, Nanos]] = []
        """Where the time of each answer went, as far as it is known."""
        self.splits: list[Mapping[str, Nanos]] = []
        """The latency of each answer in parts, in the order of the served among ``records``."""
        self.lags: list[Nanos] = []
        """How much later than it could have each observation left: this computer's own share in
        the latencies."""
        self.checked = 0
        """Chunks compared with the observation they answer."""
        self.foreign = 0
        """Of these, chunks that do not belong to it."""
        self.sent_bytes = self.raw_bytes = 0
        """Of the observations that were answered, as they were sent and as the robot had them."""
        self._origin = origin
        self._end = end
        self._counted_from = max(origin, origin if counted_from is None else counted_from)
        self._tick = behaviour.tick
        self._uncounted_ticks = -((origin - self._counted_from) // self._tick)
        self._uncounted_starved = 0
        self._period = behaviour.period
        self._rule = ThresholdRule(threshold=behaviour.threshold)
        self._queue: ActionQueue[ActionArray] = ActionQueue()
        self._ticks = 0
        self._asked = 0
        self._next_ask = origin
        self._free_at = origin
        self._recent: deque[Nanos] = deque(maxlen=_RECENT)
        self._met = self._on_time = 0
        self._lock = threading.Lock()

    @property
    def next_ask(self) -> Nanos | None:
        """Instant of the next observation; None when the robot has sent all."""
        return self._next_ask if self._next_ask < self._end else None

    @property
    def ticks(self) -> int:
        """Control ticks so far."""
        return max(0, self._ticks - self._uncounted_ticks)

    @property
    def starved_ticks(self) -> int:
        """Control ticks so far that found no action."""
        return self._queue.starved_ticks - self._uncounted_starved

    @property
    def is_away(self) -> bool:
        """Whether the server was lost, and has not served it since."""
        return bool(self.outages) and self.outages[-1].until is None

    def ask(self, now: Nanos) -> Ask:
        """Send the observation that is scheduled; the newest one if several are overdue."""
        with self._lock:
            # The action of a tick at this very instant is executed before.
            self._run_ticks((now - self._origin) // self._tick + 1)
            dry_at = self._next_tick() + time_until_dry(self._queue, self._tick)
            while (newer := self._after(self._next_ask)) is not None and newer <= now:
                self._note(self._next_ask, dry_at, outcome="superseded", code="overtaken")
                self._asked += 1
                self._next_ask = newer
            ask = Ask(
                number=self._asked,
                sent=self._next_ask,
                first_timestep=self._queue.next_timestep,
                dry_at=dry_at,
                held=max(0, self._free_at - self._next_ask),
            )
            self._asked += 1
            if ask.sent >= self._counted_from:
                self.lags.append(max(0, now - ask.sent - ask.held))
            # A closed-loop robot asks again when it knows what became of this one.
            following = self._next_scheduled(self._next_ask)
            self._next_ask = self._end if following is None else following
            return ask

    def answered(self, ask: Ask, answer: Answer, now: Nanos, *, is_own: bool | None) -> None:
        """Queue the chunk that came.

        Args:
            ask: What was asked.
            answer: What came.
            now: When.
            is_own: Whether the chunk belongs to the observation; None: it does not show. A chunk
                that belongs to another robot is not executed, and no answer.
        """
        with self._lock:
            self._catch_up(now)
            self._free_at = now
            if self.is_away:
                self.outages[-1] = replace(self.outages[-1], until=now)
            self.checked += is_own is not None
            if is_own is False:
                self.foreign += 1
                self._note(ask.sent, ask.dry_at, outcome="failed", code="foreign")
            else:
                self._queue.merge(ask.first_timestep, answer.actions)
                if self._note(ask.sent, ask.dry_at, outcome="served", answered=now):
                    self.stages.append(_stages_of(answer))
                    self.sent_bytes += answer.sent_bytes
                    self.raw_bytes += answer.raw_bytes
                    self.splits.append(split_of(answer, latency=now - ask.sent, held=ask.held))
            if self._period is None:
                # The rule is looked at after a tick's action was taken, so never before that.
                ticks = max(self._rule.ticks_until_due(self._queue), 1)
                self._next_ask = self._next_tick() + (ticks - 1) * self._tick

    def failed(
        self,
        ask: Ask,
        outcome: str,
        code: str,
        now: Nanos,
        *,
        again_at: Nanos = 0,
        is_lost: bool = False,
    ) -> None:
        """No chunk will come.

        Args:
            ask: What was asked.
            outcome: One of :data:`~takt.core.attainment.OUTCOMES`; others count as ``failed``.
            code: Why.
            now: When that was known.
            again_at: A closed-loop robot asks no earlier.
            is_lost: Whether there is no server any more that could answer.
        """
        with self._lock:
            self._catch_up(now)
            self._free_at = now
            if is_lost and not self.is_away:
                self.outages.append(Outage(since=ask.sent))
            known = outcome if outcome in OUTCOMES and outcome != "served" else "failed"
            self._note(ask.sent, ask.dry_at, outcome=known, code=code)
            if self._period is None:
                self._next_ask = max(self._next_tick(), again_at)

    def finish(self, now: Nanos) -> None:
        """The run is over; execute the ticks before ``now``, or before the end if that is first.

        Observations that were due by then and never left are requests, too.
        """
        with self._lock:
            until = min(now, self._end)
            self._catch_up(until)
            while self._period is not None and self._next_ask < until:
                self._note(
                    self._next_ask, self._next_tick(), outcome="superseded", code="overtaken"
                )
                self._asked += 1
                self._next_ask += self._period

    def view(self, now: Nanos) -> RobotView:
        """How things stand."""
        with self._lock:
            # Looking must not execute anything: a chunk may be on its way for these ticks.
            pending = max(0, -((self._origin - min(now, self._end)) // self._tick) - self._ticks)
            starved = max(0, pending - self._queue.remaining)
            return RobotView(
                name=self.name,
                model=self.behaviour.model,
                issued=len(self.records),
                answered=len(self.stages),
                met=self._met,
                on_time=self._on_time,
                ticks=self.ticks + pending,
                starved_ticks=self.starved_ticks + starved,
                remaining=max(0, self._queue.remaining - pending),
                longest_chunk=self._queue.longest_chunk,
                latencies=tuple(self._recent),
                is_paced=self.behaviour.is_paced,
                is_away=self.is_away,
            )

    def _next_scheduled(self, scheduled: Nanos) -> Nanos | None:
        return None if self._period is None else scheduled + self._period

    def _after(self, scheduled: Nanos) -> Nanos | None:
        """The scheduled observation after this one, if the robot still sends it."""
        following = self._next_scheduled(scheduled)
        return None if following is None or following >= self._end else following

    def _note(
        self,
        sent: Nanos,
        due: Nanos,
        *,
        outcome: str,
        code: str | None = None,
        answered: Nanos | None = None,
    ) -> bool:
        """Keep a request that is over; whether it counts.

        ``code`` says why it has no answer.
        """
        if sent < self._counted_from:
            return False
        if code is not None:
            self.errors[code] += 1
        record = RequestRecord(
            robot=self.name,
            model=self.behaviour.model,
            sent=sent,
            slo=self.behaviour.slo,
            due=due,
            answered=answered,
            outcome=outcome,
        )
        self.records.append(record)
        self._met += record.is_met
        self._on_time += record.is_on_time
        if record.latency is not None:
            self._recent.append(record.latency)
        return True

    def _next_tick(self) -> Nanos:
        return self._origin + self._ticks * self._tick

    def _catch_up(self, now: Nanos) -> None:
        """Execute the ticks before ``now``."""
        self._run_ticks(-((self._origin - now) // self._tick))

    def _run_ticks(self, total: int) -> None:
        if self._ticks < self._uncounted_ticks < total:
            self._run_ticks(self._uncounted_ticks)
        if total > self._ticks:
            self._queue.advance(total - self._ticks)
            self._ticks = total
            if total <= self._uncounted_ticks:
                self._uncounted_starved = self._queue.starved_ticks


def _stages_of(answer: Answer) -> dict[str, Nanos]:
    stages = dict(answer.stages)
    if answer.network is not None:
        stages = {"network": answer.network, **stages}
    if not answer.stages and answer.server is not None:
        stages["server"] = answer.server
    return stages
