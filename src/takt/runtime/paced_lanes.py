"""Paced lanes: a launch takes its profiled, co-run time by waiting, and computes nothing.

They are a device like any other to the worker: real gateways, sockets, rows and wall clock. What a
launch costs comes from the cost model of the simulator, the same :class:`~takt.core.profile.CoRun`:
remaining work with a speed that is looked up again whenever a co-runner starts or ends. So a
laptop rehearses a fleet of GPUs, and what it prints says that it was paced.

Everything happens in the thread of the worker's loop, which watches one timer. The timer is armed
with the instant at which the next launch ends; an instant that has moved is armed again. A launch
counts as ended at the instant its work was done, not when the loop came to notice, so that a late
wake-up makes one launch late and no launch longer.

Start reading at :meth:`PacedLanes.start`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from takt.core.launch import Lane
from takt.core.profile import CoRun, Profile
from takt.core.request import Stage
from takt.errors import InvariantError
from takt.runtime.launches import Completed, Job, run_job
from takt.units import Nanos

__all__ = ["PacedLanes", "Timer"]


class Timer(Protocol):
    """Wakes the loop at an instant; :class:`~takt.runtime.deadline_timer.DeadlineTimer` is one."""

    def set(self, instant: Nanos | None) -> None:
        """Wake it at ``instant`` instead; None: not at all."""
        ...


class PacedLanes:
    """The lanes of one paced device.

    Args:
        post: Receives completions; called in the loop's thread.
        timer: Armed with the next end; when it fires, call :meth:`take_ended`.
        clock: Monotonic, in nanoseconds.
        vary: The time a launch takes this time, from its time in the profile; None: the same.
    """

    def __init__(
        self,
        post: Callable[[Completed], None],
        timer: Timer,
        *,
        clock: Callable[[], Nanos] = time.monotonic_ns,
        vary: Callable[[Nanos], Nanos] | None = None,
    ) -> None:
        self._post = post
        self._timer = timer
        self._clock = clock
        self._vary = vary
        self._profile: Profile | None = None
        self._next_profile: Profile | None = None
        self._running: CoRun[Lane] | None = None
        self._results: dict[Lane, Completed] = {}
        self._computing = threading.Lock()

    def pace(self, profile: Profile) -> None:
        """Take times from ``profile`` as soon as nothing runs.

        Models change only then, and a launch keeps the times it was started with.
        """
        self._next_profile = profile

    def start(self, job: Job) -> None:
        """Begin a launch now; it ends when its work is done."""
        now = self._clock()
        self._finish_until(now)
        running = self._co_run()
        launch = job.launch
        work = launch.work(job.model.model.architecture)
        solo = None
        if self._vary is not None and self._profile is not None:
            solo = self._vary(self._profile.solo(work))
        running.start(launch.lane, work, now, solo=solo)
        self._arm()
        # The answers of a stand-in cost microseconds. Written now, they wait with the launch
        # instead of making its end late.
        with self._computing:
            self._results[launch.lane] = run_job(job)

    def take_ended(self) -> None:
        """Post every launch that has ended by now, in the order of their ends."""
        self._finish_until(self._clock())
        self._arm()

    def next_end(self) -> Nanos | None:
        """When the next launch ends, if nothing else starts."""
        end = None if self._running is None else self._running.next_end()
        return None if end is None else end[0]

    def call(self, stage: Stage, function: Callable[[], object]) -> None:
        """Run ``function`` in the calling thread while nothing is computed."""
        del stage
        with self._computing:
            function()

    def close(self) -> None:
        """Forget what runs; it is not posted."""
        self._running = None
        self._results.clear()
        self._timer.set(None)

    def _co_run(self) -> CoRun[Lane]:
        """What runs, by the profile that is in force."""
        if self._next_profile is not None and not self._results:
            self._profile, self._next_profile = self._next_profile, None
            self._running = CoRun(self._profile)
        if self._running is None:
            raise InvariantError("a launch was given to paced lanes without a profile")
        return self._running

    def _finish_until(self, now: Nanos) -> None:
        running = self._running
        if running is None:
            return
        while (end := running.next_end()) is not None and end[0] <= now:
            instant, lane = end
            running.finish(lane, instant)
            self._post(self._results.pop(lane))

    def _arm(self) -> None:
        self._timer.set(self.next_end())
