"""What runs in one process of a benchmark: some of the robots, epoch after epoch.

It is told an epoch, connects its robots, says that it is ready, is told the instant at which all
processes start, and gives what its robots sent and got. It measures its own share of the latencies
too: the processor time it used, and how late its robots were in sending.

Start reading at :meth:`Sender.serve`.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

from takt.cli.drive import Drive
from takt.cli.driving.crew import Crew, Plan
from takt.cli.driving.robot import DrivenRobot
from takt.cli.driving.robot_run import RobotRun
from takt.errors import TaktError
from takt.heap import keep_freed_memory
from takt.units import MILLISECOND, Nanos

__all__ = ["Assemble", "Broken", "Epoch", "Link", "Progress", "Ready", "Sender", "Sent", "send"]

_LOOK_EVERY: Nanos = 500 * MILLISECOND
_SWITCH_INTERVAL_S = 0.0005
"""Longest time a thread keeps others of its process waiting; Python's own 5 ms would be seen in
the latencies."""


class Epoch(NamedTuple):
    """An order: let the robots run once."""

    seed: int
    """Of their phases."""
    warm_up: Nanos
    """Before what counts."""
    duration: Nanos
    """Of what counts."""


class Ready(NamedTuple):
    """An answer: robots are connected, and wait for the instant to start."""

    robots: int


class Progress(NamedTuple):
    """An answer: how things stand."""

    issued: int
    answered: int
    met: int


class Sent(NamedTuple):
    """An answer: an epoch is over."""

    runs: list[RobotRun]
    start: Nanos
    """Instant from which on was counted."""
    cpu: Nanos
    """Processor time of this process since the robots started."""
    wall: Nanos
    """Time since then."""


class Broken(NamedTuple):
    """An answer: there will be no other."""

    why: str


class Link(Protocol):
    """What is used of a pipe to the process that directs."""

    def send(self, obj: Any, /) -> None:  # noqa: ANN401
        """Send a message."""
        ...

    def recv(self) -> Any:  # noqa: ANN401
        """Wait for a message."""
        ...


class _Crew(Protocol):
    """What is used of a :class:`~takt.cli.driving.crew.Crew`."""

    start: Nanos
    robots: list[DrivenRobot]

    def run(self, look: Callable[[], None], every: Nanos) -> None: ...


class Assemble(Protocol):
    """Makes a crew; :meth:`~takt.cli.driving.crew.Crew.assemble`."""

    def __call__(
        self,
        plans: Sequence[Plan],
        *,
        duration: Nanos,
        seed: int,
        clock: Callable[[], Nanos],
        warm_up: Nanos,
        begin: Callable[[], Nanos],
    ) -> _Crew:
        """See there."""
        ...


class Sender:
    """Runs some of a benchmark's robots.

    Args:
        plans: These robots.
        link: To the process that directs.
        assemble: Makes a crew of them.
        clock: Monotonic, in nanoseconds, and the same in all processes.
        cpu_clock: Processor time of this process, in nanoseconds.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        link: Link,
        *,
        assemble: Assemble = Crew.assemble,
        clock: Callable[[], Nanos] = time.monotonic_ns,
        cpu_clock: Callable[[], Nanos] = time.process_time_ns,
    ) -> None:
        self._plans = plans
        self._link = link
        self._assemble = assemble
        self._clock = clock
        self._cpu_clock = cpu_clock

    def serve(self) -> None:
        """Run an epoch for each order, until None comes instead of one."""
        while (epoch := self._link.recv()) is not None:
            self._link.send(self._run(epoch))

    def _run(self, epoch: Epoch) -> Sent:
        crew = self._assemble(
            self._plans,
            duration=epoch.duration,
            warm_up=epoch.warm_up,
            seed=epoch.seed,
            clock=self._clock,
            begin=self._begin,
        )
        cpu, wall = self._cpu_clock(), self._clock()
        crew.run(partial(self._look, crew), _LOOK_EVERY)
        return Sent(
            runs=[RobotRun.of(robot) for robot in crew.robots],
            start=crew.start + epoch.warm_up,
            cpu=self._cpu_clock() - cpu,
            wall=self._clock() - wall,
        )

    def _begin(self) -> Nanos:
        self._link.send(Ready(len(self._plans)))
        return self._link.recv()

    def _look(self, crew: _Crew) -> None:
        now = self._clock()
        views = [robot.view(now) for robot in crew.robots]
        issued, answered, met = (
            sum(getattr(view, name) for view in views) for name in Progress._fields
        )
        self._link.send(Progress(issued, answered, met))


def send(link: Connection, drive: Drive, place: int, processes: int) -> None:
    """Be one of the processes.

    Args:
        link: To the process that directs.
        drive: Describes all robots.
        place: Of this process among all, from 0; it runs every ``processes``-th robot.
        processes: How many there are.
    """
    # Ctrl-C and the end of a terminal reach all processes, and what a service manager sends does so
    # too; the one that directs decides what it means.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    keep_freed_memory()
    # A pipe that has ended means that the process that directs has: nobody waits for a result.
    with contextlib.suppress(EOFError, OSError):
        try:
            plans = drive.plans()[place::processes]
        except TaktError as error:
            link.send(Broken(str(error)))
            return
        gc.freeze()
        Sender(plans, link).serve()
