"""CPU lanes: one thread per stage, each on cores of its own.

A thread takes one piece of work at a time from its queue and blocks while there is none. Inference
engines release the interpreter while they compute, so the two lanes and the loop run side by side.

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

from takt.core.request import Stage
from takt.errors import ConfigError
from takt.policies.interface import Placement
from takt.runtime.launches import Completed, Job, run_job
from takt.units import Nanos, to_seconds

__all__ = ["CpuLanes"]

_Work: TypeAlias = Callable[[], None]

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
        self._queues: dict[Stage, SimpleQueue[_Work | None]] = {s: SimpleQueue() for s in Stage}
        self._threads = [
            threading.Thread(
                target=_live,
                args=(self._queues[stage], _usable(placement.cores(stage))),
                name=f"lane-{stage.name.lower()}",
                daemon=True,
            )
            for stage in Stage
        ]
        for thread in self._threads:
            thread.start()

    def start(self, job: Job) -> None:
        """Hand ``job`` to the thread of its stage."""
        self._queues[job.launch.lane.stage].put(partial(self._run, job))

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

    def _run(self, job: Job) -> None:
        start = self._clock()
        completed = run_job(job)
        least = job.model.network.launch_time(job.launch.lane.stage, len(job.rows))
        left = start + least - self._clock() if least else 0
        if left > 0:
            self._closing.wait(to_seconds(left))
        if not self._closing.is_set():
            self._post(completed)


def _live(work: SimpleQueue[_Work | None], cores: tuple[int, ...]) -> None:
    if cores:
        os.sched_setaffinity(0, cores)  # 0 is the calling thread, not the process
    while (piece := work.get()) is not None:
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
