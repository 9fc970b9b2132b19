"""Runs the simulations of one question on all cores.

A simulation is one process's work from beginning to end and draws nothing but what its seed says,
so where it runs changes no figure.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import repeat

from takt.sim.fleet import Fleet
from takt.sim.knee import Draw, Job, Runner, draw

__all__ = ["Processes", "processes"]


class Processes:
    """Processes that simulate fleets."""

    def __init__(self, pool: ProcessPoolExecutor, count: int) -> None:
        self._pool = pool
        self._count = count

    def runner(self, fleet: Fleet) -> Runner:
        """Simulates sizes of ``fleet``."""

        def run(jobs: Sequence[Job]) -> list[Draw]:
            # A process gets the fleet once for all its jobs, and keeps what its profile looked up.
            size = -(-len(jobs) // self._count)
            return list(self._pool.map(draw, repeat(fleet), jobs, chunksize=size))

        return run


@contextmanager
def processes() -> Generator[Processes]:
    """As many processes as there are cores for us, until the block ends."""
    # A simulation makes no cycles worth collecting before its process ends.
    count = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(count, initializer=gc.disable) as pool:
        yield Processes(pool, count)
