"""A robot of the simulation: it executes its action queue and asks for more.

The queue and the rule that asks are those of :mod:`takt.robot`, which the client library runs on
real robots. Control ticks are not events of the simulation; a robot catches up on them when
something happens to it.

Every robot draws from random streams of its own, one per purpose. When a fleet grows, the robots
that were there keep their phases, their jitter and the delays of their observations.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from takt.robot.action_queue import ActionQueue
from takt.robot.replanning import ThresholdRule, time_until_dry
from takt.sim.fleet import RobotGroup
from takt.units import SECOND, Nanos, ms

__all__ = ["Ask", "SimulatedRobot"]


class Ask(NamedTuple):
    """An observation that a robot sends."""

    first_timestep: int
    """Timestep at which its chunk will begin."""
    dry_at: Nanos
    """Instant of the first control tick without an action, if no chunk comes before."""
    next_ask: Nanos | None
    """When an open-loop robot sends the next one; None in closed loop."""


class SimulatedRobot:
    """One robot.

    It is switched on at a random instant within one cycle of its own: an open-loop robot within
    a period, a closed-loop robot within the time a chunk lasts until it asks again. Robots
    switched on together would ask together for ever.

    Args:
        name: Its name in reports and its session at the server.
        group: How it behaves.
        seed: Seed of the run.
    """

    def __init__(self, name: str, group: RobotGroup, seed: int) -> None:
        self.name = name
        self.group = group
        self.observation_bytes = group.observation_bytes
        self.uplink = Random(f"{seed}/{name}/uplink")
        """Draws the delays of its observations."""
        self.downlink = Random(f"{seed}/{name}/downlink")
        """Draws the delays of its answers."""
        self.queue: ActionQueue[int] = ActionQueue()
        self._rule = ThresholdRule(threshold=group.threshold)
        self._tick = group.tick
        self._chunk = range(group.horizon)
        self._ticks = 0
        self._asks = Random(f"{seed}/{name}/asks")
        self._period = 0 if group.rate_hz is None else round(SECOND / group.rate_hz)
        self._jitter = ms(group.jitter_ms)
        self._origin = self._asks.randrange(self._period or self._cycle())  # instant of tick 0
        self._asked = 0
        self._newest_timestep = 0

    def first_ask(self) -> Nanos:
        """Instant of the first observation."""
        return self._open_loop_ask() if self._period else self._origin

    def ask(self, now: Nanos) -> Ask:
        """Send an observation at ``now``; the action of a tick at ``now`` is executed before."""
        self._run_ticks((now - self._origin) // self._tick + 1)
        dry_at = self._next_tick() + time_until_dry(self.queue, self._tick)
        self._asked += 1
        next_ask = self._open_loop_ask() if self._period else None
        return Ask(self.queue.next_timestep, dry_at, next_ask)

    def receive(self, first_timestep: int, now: Nanos) -> Nanos | None:
        """Queue a chunk; returns when a closed-loop robot asks next.

        A chunk that an answer to a newer observation has overtaken is dropped.
        """
        self.catch_up(now)
        if first_timestep >= self._newest_timestep:
            self._newest_timestep = first_timestep
            self.queue.merge(first_timestep, self._chunk)
        if self._period:
            return None
        # The rule is looked at after a tick's action was taken, so never before the next tick.
        ticks = max(self._rule.ticks_until_due(self.queue), 1)
        return self._next_tick() + (ticks - 1) * self._tick

    def refused(self, now: Nanos) -> Nanos | None:
        """No chunk will come; returns when a closed-loop robot asks next."""
        self.catch_up(now)
        return None if self._period else self._next_tick()

    def catch_up(self, now: Nanos) -> None:
        """Execute the ticks before ``now``."""
        self._run_ticks(-((self._origin - now) // self._tick))

    @property
    def starved_ticks(self) -> int:
        """Ticks so far that found no action."""
        return self.queue.starved_ticks

    @property
    def ticks(self) -> int:
        """Control ticks so far."""
        return self._ticks

    def _cycle(self) -> Nanos:
        """Time in which a fresh chunk drains until a closed-loop robot asks again."""
        full: ActionQueue[int] = ActionQueue()
        full.merge(0, self._chunk)
        return max(self._rule.ticks_until_due(full), 1) * self._tick

    def _open_loop_ask(self) -> Nanos:
        jitter = self._asks.randrange(self._jitter) if self._jitter else 0
        return self._origin + self._asked * self._period + jitter

    def _next_tick(self) -> Nanos:
        return self._origin + self._ticks * self._tick

    def _run_ticks(self, total: int) -> None:
        if total > self._ticks:
            self.queue.advance(total - self._ticks)
            self._ticks = total
