"""CPU lanes: one thread per stage, each on cores of its own.

A thread takes one piece of work at a time from its queue and blocks while there is none. Inference
engines release the interpreter while they compute, so the two lanes and the loop run side by side.

A brief launch is run by whoever starts it, the worker's loop: to wake a thread and be woken by it
would take longer. Brief is what has lately taken less than :data:`HAND_OVER`, beginning with what
was measured while the model was warmed; a model that computes never is. A lane still runs one
piece of work at a time, and a launch still ends in an instant of its own.

Start reading at :meth:`CpuLanes.start`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias

from takt.core.profile import Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.policies.interface import Placement
from takt.runtime.launches import Completed, Job, run_job
from takt.units import Nanos, to_seconds

__all__ = ["HAND_OVER", "CpuLanes"]

_Piece: TypeAlias = Callable[[], None]

HAND_OVER: Nanos = 200_000
"""What it costs to give a launch to a thread and to hear of its end, on a machine whose cores sleep
between requests: two wake-ups of 50 to 100 microseconds each."""
_WEIGHT = 8
"""One launch in this many that is slow once, because the machine was busy, is soon forgotten."""
_JOIN_S = 1.0
"""A network that hangs keeps its thread; the process ends without it."""


class CpuLanes:
    """The prefix lane and the denoise lane of one CPU device.

    Args:
        placement: Cores of each lane.
        post: Receives completions; called by the lanes' threads.
        clock: Monotonic, in nanoseconds.

    Raises:
        ConfigError: The process may not use one of the cores.
    """

    def __init__(
        self,
        placement: Placement,
        post: Callable[[Completed], None],
        *,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        self._post = post
        self._clock = clock
        self._closing = threading.Event()
        self._queues: dict[Stage, SimpleQueue[_Piece | None]] = {s: SimpleQueue() for s in Stage}
        self._busy = {stage: threading.Lock() for stage in Stage}
        """Held while something runs in a lane, by the loop or by the lane's thread."""
        self._lately: dict[Work, Nanos] = {}
        """What launches of each kind have lately taken."""
        self._threads = [
            threading.Thread(
                target=_live,
                args=(self._queues[stage], self._busy[stage], _usable(placement.cores(stage))),
                name=f"lane-{stage.name.lower()}",
                daemon=True,
            )
            for stage in Stage
        ]
        for thread in self._threads:
            thread.start()

    def start(self, job: Job) -> None:
        """Run ``job`` at once if it is brief, else hand it to the thread of its stage."""
        stage = job.launch.lane.stage
        work = job.launch.work(job.model.model.architecture)
        lately = self._lately.get(work, job.model.solo.get(work, HAND_OVER))
        if lately < HAND_OVER and self._busy[stage].acquire(blocking=False):
            try:
                self._run(job, work, lately)
            finally:
                self._busy[stage].release()
        else:
            self._queues[stage].put(partial(self._run, job, work, lately))

    def call(self, stage: Stage, function: Callable[[], object]) -> None:
        """Run ``function`` in the thread of ``stage`` and wait for it; raises what it raises."""
        done: Future[None] = Future()
        self._queues[stage].put(partial(_call, function, done))
        done.result()

    def close(self) -> None:
        """End both threads. One that is inside a network is not waited for very long."""
        self._closing.set()
        for queue in self._queues.values():
            queue.put(None)
        for thread in self._threads:
            thread.join(_JOIN_S)

    def _run(self, job: Job, work: Work, lately: Nanos) -> None:
        start = self._clock()
        completed = run_job(job)
        took = self._clock() - start
        least = job.model.network.launch_time(job.launch.lane.stage, len(job.rows))
        if took < least:
            self._closing.wait(to_seconds(least - took))
        self._lately[work] = lately + (max(took, least) - lately) // _WEIGHT
        if not self._closing.is_set():
            self._post(completed)


def _live(work: SimpleQueue[_Piece | None], busy: threading.Lock, cores: tuple[int, ...]) -> None:
    if cores:
        os.sched_setaffinity(0, cores)  # 0 is the calling thread, not the process
    while (piece := work.get()) is not None:
        with busy:
            piece()


def _call(function: Callable[[], object], done: Future[None]) -> None:
    try:
        function()
    except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
        done.set_exception(error)
    else:
        done.set_result(None)


def _usable(cores: tuple[int, ...]) -> tuple[int, ...]:
    usable = os.sched_getaffinity(0)
    foreign = [core for core in cores if core not in usable]
    if foreign:
        raise ConfigError(f"cores {foreign} are not usable here; usable: {sorted(usable)}")
    return cores
