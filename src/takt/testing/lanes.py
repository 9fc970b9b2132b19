"""Lanes that take their time from a profile and a clock that is set by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from takt.core.launch import Lane
from takt.core.profile import CoRun, Profile
from takt.core.request import Stage
from takt.link.messages import Outcome
from takt.runtime.launches import Completed, Failure, Job, run_job
from takt.units import Nanos

__all__ = ["FakeLanes"]


class FakeLanes:
    """Runs launches in no time and ends them when their profiled, co-run time is over.

    A launch is computed when its end is taken, so what its rows read until then is what a real lane
    might have read.

    Args:
        profile: Times of the launches, see :meth:`takt.core.trace.Setup.costs`.
        now: Reads the clock, such as :meth:`takt.testing.clock.ManualClock.now`.
        physical: For each device of the group, the physical device it is part of.
        failing: Requests whose row fails, and in which stage.
    """

    def __init__(
        self,
        profile: Profile,
        now: Callable[[], Nanos],
        *,
        physical: Sequence[int] = (0,),
        failing: Mapping[int, Stage] | None = None,
    ) -> None:
        self.running: dict[Lane, Job] = {}
        """The launch on each busy lane."""
        self.is_closed = False
        self._now = now
        self._failing = dict(failing or {})
        self._physical = tuple(physical)
        self._devices: list[CoRun[Lane]] = [CoRun(profile) for _ in range(max(physical) + 1)]

    def start(self, job: Job) -> None:
        """Begin a launch at the instant the clock shows."""
        lane = job.launch.lane
        work = job.launch.work(job.model.model.architecture)
        self._devices[self._physical[lane.device]].start(lane, work, self._now())
        self.running[lane] = job

    def call(self, stage: Stage, function: Callable[[], object]) -> None:
        """Run ``function`` at once."""
        del stage
        function()

    def close(self) -> None:
        """Forget what runs."""
        self.running.clear()
        self.is_closed = True

    def next_end(self) -> Nanos | None:
        """When the next launch ends, if nothing else starts."""
        end = self._next_end()
        return None if end is None else end[0]

    def take_ended(self) -> list[Completed]:
        """Completions of the launches that have ended by now.

        Of ends at one instant those of the first physical device come first, and within it those
        that started first.
        """
        ended: list[Completed] = []
        while (end := self._next_end()) is not None and end[0] <= self._now():
            lane = end[1]
            self._devices[self._physical[lane.device]].finish(lane, self._now())
            ended.append(self._end(self.running.pop(lane)))
        return ended

    def _next_end(self) -> tuple[Nanos, Lane] | None:
        ends = [end for device in self._devices if (end := device.next_end()) is not None]
        return min(ends, key=lambda end: end[0], default=None)

    def _end(self, job: Job) -> Completed:
        completed = run_job(job)
        stage = job.launch.lane.stage
        failed = {
            seq: Failure(Outcome.FAILED, "made to fail")
            for seq in job.launch.requests
            if self._failing.get(seq) is stage
        }
        return completed._replace(failures={**completed.failures, **failed})
