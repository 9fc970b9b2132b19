"""Runs simulated robots: a thread and a connection each, for a given time.

A robot's thread sleeps until its next observation is scheduled, by absolute instants, asks, and
waits for the answer. What goes wrong is counted and the run goes on; a lost connection is opened
again, after a pause that grows.

Start reading at :meth:`Crew.assemble`, then :meth:`Crew.run`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Protocol

from takt.cli.driving.episodes import Episode
from takt.cli.driving.robot import Ask, Behaviour, DrivenRobot
from takt.client.answer import Answer
from takt.client.backoff import Backoff
from takt.client.errors import ConnectionLostError
from takt.errors import RefusedError, TaktError
from takt.robot.latency import LatencyEstimate
from takt.units import MILLISECOND, SECOND, Nanos, to_seconds

__all__ = ["Asking", "Crew", "Hand", "Plan", "Stop"]

_LEAD: Nanos = 50 * MILLISECOND
"""From starting the threads to the first instant a robot may be switched on."""
_SPREAD: Nanos = SECOND
"""Time within which closed-loop robots are switched on."""
_CONNECTING_AT_ONCE = 16
_GRACE: Nanos = 2 * SECOND
"""Longest wait for answers after the last observation, or one slo if that is longer."""


class Asking(Protocol):
    """What is used of a :class:`~takt.client.connection.Connection`."""

    def infer(self, observation: Mapping[str, object], *, due_in: Nanos | None = None) -> Answer:
        """Ask and wait."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class Stop(Protocol):
    """What is used of a :class:`threading.Event` that is set when the run is over."""

    def is_set(self) -> bool:
        """Whether it is over."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait until it is, or for that many seconds; whether it is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One robot that is to be run."""

    name: str
    behaviour: Behaviour
    episode: Episode
    connect: Callable[[], Asking]
    """Opens a connection of this robot to its model."""
    stream: str = ""
    """Robot of a simulation that is switched on at the same instant in a run of the same seed, so
    that a measured run and a simulated one have the same luck; ``name`` when empty."""


class Crew:
    """The robots of one run.

    Args:
        hands: One for each robot.
        start: Instant the first robot may be switched on.
        end: Instant from which on nothing is sent.
        stop: What the hands look at to see whether the run goes on.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(
        self,
        hands: Sequence[Hand],
        *,
        start: Nanos,
        end: Nanos,
        stop: threading.Event,
        clock: Callable[[], Nanos],
    ) -> None:
        self.start = start
        self.end = end
        self.robots = [hand.robot for hand in hands]
        self._hands = hands
        self._stop = stop
        self._clock = clock
        self._grace = max([_GRACE, *(robot.behaviour.slo for robot in self.robots)])
        self._threads = [
            threading.Thread(target=hand.run, name=hand.robot.name, daemon=True) for hand in hands
        ]

    @classmethod
    def assemble(
        cls,
        plans: Sequence[Plan],
        *,
        duration: Nanos,
        seed: int,
        clock: Callable[[], Nanos],
        warm_up: Nanos = 0,
        begin: Callable[[], Nanos] | None = None,
    ) -> Crew:
        """Connect the robots and fix the instant they start.

        A robot that cannot connect takes part all the same: its observations have no answer.

        Args:
            plans: The robots.
            duration: How long they send, what counts.
            seed: Of their phases.
            clock: Monotonic, in nanoseconds.
            warm_up: How long they send before, what does not count.
            begin: Asked once all are connected; the instant they start, which crews of several
                processes share. When None it is in a moment.
        """
        with ThreadPoolExecutor(_CONNECTING_AT_ONCE) as pool:
            connections = list(pool.map(_try_to_connect, plans))
        stop = threading.Event()
        start = clock() + _LEAD if begin is None else begin()
        end = start + warm_up + duration
        robots = [_robot_of(plan, start, end, seed, start + warm_up) for plan in plans]
        hands = [
            Hand(robot, plan, connection, stop, clock)
            for robot, plan, connection in zip(robots, plans, connections, strict=True)
        ]
        return cls(hands, start=start, end=end, stop=stop, clock=clock)

    def run(self, look: Callable[[], None], every: Nanos) -> None:
        """Run the robots until the end; whatever is under way then has a little longer.

        Args:
            look: Called again and again meanwhile.
            every: Time between two calls.

        Raises:
            KeyboardInterrupt: The run was broken off; the figures up to then are sound.
        """
        for thread in self._threads:
            thread.start()
        try:
            self._wait(self.end + self._grace, look, every)
        finally:
            self._break_off()

    def _wait(self, until: Nanos, look: Callable[[], None], every: Nanos) -> None:
        while (left := until - self._clock()) > 0:
            busy = next((thread for thread in self._threads if thread.is_alive()), None)
            if busy is None:
                return
            busy.join(to_seconds(min(every, left)))
            look()

    def _break_off(self) -> None:
        self._stop.set()
        for hand in self._hands:
            hand.close()
        for thread in self._threads:
            thread.join()
        now = self._clock()
        for robot in self.robots:
            robot.finish(now)


class Hand:
    """Acts for one robot, in a thread of its own.

    Args:
        robot: The robot.
        plan: What it sends, and how it connects.
        connection: Already open; None: it could not be opened.
        stop: Says whether the run goes on, and is what to wait at.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(
        self,
        robot: DrivenRobot,
        plan: Plan,
        connection: Asking | None,
        stop: Stop,
        clock: Callable[[], Nanos],
    ) -> None:
        self.robot = robot
        self._episode = plan.episode
        self._connect = plan.connect
        self._connection = connection
        self._stop = stop
        self._clock = clock
        self._backoff = Backoff()
        self._connect_at: Nanos = 0
        self._network = LatencyEstimate.of_network()

    def run(self) -> None:
        """Ask until the robot has sent all."""
        while (scheduled := self.robot.next_ask) is not None and self._wait_until(scheduled):
            ask = self.robot.ask(self._clock())
            try:
                self._ask(ask)
            except Exception as error:  # noqa: BLE001 - each request counts, even if we are at fault
                self._failed(ask, error)
        self.close()

    def close(self) -> None:
        """End the connection; another thread may do so, and ends a wait for an answer."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _wait_until(self, instant: Nanos) -> bool:
        """Sleep until then; whether the run goes on."""
        while (left := instant - self._clock()) > 0:
            if self._stop.wait(to_seconds(left)):
                return False
        return not self._stop.is_set()

    def _ask(self, ask: Ask) -> None:
        now = self._clock()
        if self._connection is None and now < self._connect_at:
            code = "unreachable"
            self.robot.failed(ask, code, code, now, again_at=self._connect_at)
            return
        observation = self._episode.observation(ask.number)
        connection = self._connection = self._connection or self._connect()
        answer = connection.infer(observation, due_in=self._due_in(ask))
        now = self._clock()
        is_own = self._episode.is_own(observation, answer.actions)
        self.robot.answered(ask, answer, now, is_own=is_own)
        self._backoff.succeeded()
        if answer.network is not None:
            self._network.add(answer.network)

    def _due_in(self, ask: Ask) -> Nanos | None:
        if self.robot.behaviour.deadline == "slo":
            return None
        return ask.dry_at - self._clock() - (self._network.estimate or 0)

    def _failed(self, ask: Ask, error: Exception) -> None:
        now = self._clock()
        if self._stop.is_set():
            self.robot.failed(ask, "pending", "pending", now)
            return
        again_at = now + self._backoff.after_failure()
        if self._connection is None or not isinstance(error, RefusedError):
            self.close()
            self._connect_at = again_at
        code = getattr(error, "code", type(error).__name__)
        is_lost = isinstance(error, ConnectionLostError)
        self.robot.failed(ask, code, code, now, again_at=again_at, is_lost=is_lost)


def _try_to_connect(plan: Plan) -> Asking | None:
    try:
        return plan.connect()
    except TaktError:
        return None  # the first observation tries again, and then it counts


def _robot_of(plan: Plan, start: Nanos, end: Nanos, seed: int, counted_from: Nanos) -> DrivenRobot:
    # Robots switched on together would ask together for ever.
    draws = Random(f"{seed}/{plan.stream or plan.name}/asks")  # as takt.sim.robot draws them
    spread = plan.behaviour.period or _SPREAD
    origin = start + draws.randrange(min(spread, end - start))
    return DrivenRobot(plan.name, plan.behaviour, origin=origin, end=end, counted_from=counted_from)
