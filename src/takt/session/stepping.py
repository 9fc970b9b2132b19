"""When a robot that counts its actions needs a new chunk.

A LeRobot robot numbers the actions it executes and says with each observation how far it is (the
*timestep*). It sends at its control rate whenever its queue is short, so most of what it sends asks
for a chunk that is already on its way. :class:`Stepping` picks the observations worth an inference:

- one that says *must go* (the robot's queue is empty) always is;
- a timestep that was predicted, or is being predicted, is not predicted again; after a failure it
  is, or a robot that has executed nothing yet would wait for ever;
- of those that wait, the newest wins;
- one that the robot took before it had the chunk delivered last is redundant, if that chunk lasts
  until another could be there: it would have been sent whatever the chunk holds. Only the robot's
  own clock says so, and only durations of it are used.

It also infers when the robot's queue runs dry, from timesteps and the control period they show.

Pure rules: no clock, no socket. Start reading at :meth:`Stepping.offer`.
"""

import math
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from takt.errors import InvariantError
from takt.units import MILLISECOND, SECOND, Nanos

__all__ = ["Step", "Stepping", "Taken", "Verdict"]

T = TypeVar("T")

_MAX_PREDICTED = 4096
"""Timesteps remembered as predicted; a robot's own only ever rise."""
_LEAST_SPAN = 4
"""Steps between two observations from which a control period can be told."""
_NUM_PERIODS = 8
_SHORTEST_PERIOD: Nanos = MILLISECOND
_LONGEST_PERIOD: Nanos = SECOND
_SLACK_STEPS = 2
"""Steps by which estimates may be wrong."""


class Verdict(Enum):
    """What became of an observation."""

    ACCEPTED = "accepted"
    PREDICTED = "predicted"
    SIMILAR = "similar"
    REDUNDANT = "redundant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What an observation says about its place in the robot's life."""

    timestep: int
    """Number of the newest action the robot has executed; 0 before the first."""
    taken: Nanos
    """When it was taken, on the robot's clock: only differences mean something."""
    arrival: Nanos
    """When its last byte was read, on ours."""
    must_go: bool = False
    """Whether the robot's queue is empty."""
    state: tuple[float, ...] = ()
    """The robot's state, for the similarity filter."""
    task: str = ""
    """Its instruction; a new one is never similar to the old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken(Generic[T]):
    """An observation whose inference begins."""

    step: Step
    item: T
    due: Nanos
    """When the robot's queue runs dry, less the network both ways; in the past if it is dry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Delivered:
    """The chunk delivered last."""

    step: Step
    end: int
    """First timestep after it."""
    served: Nanos
    """From the arrival of its observation to its delivery."""


class Stepping(Generic[T]):
    """One session of a robot that counts its actions.

    Args:
        period: Control period to assume until timesteps show one.
        tolerance: An observation whose state lies nearer than this to the one predicted last is
            similar and dropped; None: none is. In the robot's own units (Euclidean), so the right
            value differs between degrees and radians.
        allowance: What the robot's network takes, both ways.
    """

    def __init__(
        self, *, period: Nanos, tolerance: float | None = None, allowance: Nanos = 0
    ) -> None:
        self.last_timestep = 0
        """Largest timestep seen."""
        self._default_period = period
        self._tolerance = tolerance
        self._allowance = allowance
        self._periods: deque[Nanos] = deque(maxlen=_NUM_PERIODS)
        self._last: Step | None = None
        self._waiting: tuple[Step, T] | None = None
        self._running: Step | None = None
        self._predicted: dict[int, None] = {}
        self._compared: Step | None = None
        """Whose state a new one is compared with."""
        self._delivered: _Delivered | None = None

    @property
    def period(self) -> Nanos:
        """The control period that timesteps show: the shortest seen lately, since a robot that
        waits for actions stretches the others.
        """
        return min(self._periods, default=self._default_period)

    @property
    def has_waiting(self) -> bool:
        """Whether :meth:`begin` would return an observation."""
        return self._waiting is not None and self._running is None

    @property
    def is_running(self) -> bool:
        """Whether an inference has begun and its outcome is not delivered."""
        return self._running is not None

    def offer(self, step: Step, item: T) -> Verdict:
        """An observation came.

        Returns:
            ``ACCEPTED``: it waits, in place of any that did; else why it was dropped.
        """
        self._learn(step)
        verdict = Verdict.ACCEPTED if step.must_go else self._judge(step)
        if verdict is Verdict.ACCEPTED:
            self._waiting = (step, item)
        return verdict

    def begin(self) -> Taken[T] | None:
        """Take the waiting observation for an inference; None if none waits or one is running."""
        if self._waiting is None or self._running is not None:
            return None
        step, item = self._waiting
        self._waiting = None
        self._running = step
        self._compared = step
        self._predicted.pop(step.timestep, None)
        self._predicted[step.timestep] = None
        if len(self._predicted) > _MAX_PREDICTED:
            del self._predicted[next(iter(self._predicted))]
        return Taken(step=step, item=item, due=self._due(step))

    def deliver(self, num_actions: int, now: Nanos) -> None:
        """The chunk of the running observation goes to the robot.

        Args:
            num_actions: Actions in it; the first has the observation's timestep.
            now: On our clock.
        """
        step = self._end_run()
        self._delivered = _Delivered(
            step=step, end=step.timestep + num_actions, served=now - step.arrival
        )
        if self._waiting is not None:
            waiting = self._waiting[0]
            if not waiting.must_go and self._is_redundant(waiting):
                self._waiting = None

    def fail(self) -> None:
        """The running observation gets no chunk: its timestep may be predicted again."""
        step = self._end_run()
        self._predicted.pop(step.timestep, None)
        self._compared = None

    def _end_run(self) -> Step:
        if self._running is None:
            raise InvariantError("no inference of this session is running")
        step, self._running = self._running, None
        return step

    def _learn(self, step: Step) -> None:
        """See how far the robot has come, and how fast it goes."""
        self.last_timestep = max(self.last_timestep, step.timestep)
        last = self._last
        if last is None or step.timestep < last.timestep:
            self._last = step
        elif step.timestep - last.timestep >= _LEAST_SPAN:
            period = (step.taken - last.taken) // (step.timestep - last.timestep)
            if _SHORTEST_PERIOD <= period <= _LONGEST_PERIOD:
                self._periods.append(period)
            self._last = step

    def _judge(self, step: Step) -> Verdict:
        if step.timestep in self._predicted:
            return Verdict.PREDICTED
        if self._is_similar(step):
            return Verdict.SIMILAR
        if self._running is None and self._is_redundant(step):
            return Verdict.REDUNDANT
        return Verdict.ACCEPTED

    def _is_similar(self, step: Step) -> bool:
        before = self._compared
        if self._tolerance is None or before is None or before.task != step.task:
            return False
        if len(before.state) != len(step.state):
            return False
        return math.dist(before.state, step.state) < self._tolerance

    def _is_redundant(self, step: Step) -> bool:
        """Whether the robot took it before it had the chunk delivered last."""
        delivered = self._delivered
        if delivered is None:
            return False
        since = step.taken - delivered.step.taken
        # A quarter more, for the way up and down where nobody has measured it.
        if not 0 < since <= delivered.served * 5 // 4 + self._allowance:
            return False
        # A robot executes one action a period: a timestep further on is not that robot's doing.
        steps = step.timestep - delivered.step.timestep
        if steps > since // self.period + _SLACK_STEPS:
            return False
        # Where the chunk does not last until another one could be there, every moment counts.
        left = (delivered.end - 1 - step.timestep) * self.period
        return left > delivered.served + self._allowance + _SLACK_STEPS * self.period

    def _due(self, step: Step) -> Nanos:
        left = 0
        if self._delivered is not None and not step.must_go:
            # A robot that turns back its timestep has no more left than its chunk.
            executed = max(step.timestep, self._delivered.step.timestep)
            left = max(0, self._delivered.end - 1 - executed)
        return step.arrival + left * self.period - self._allowance
