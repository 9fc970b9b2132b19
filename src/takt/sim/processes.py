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

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def runner(self, fleet: Fleet) -> Runner:
        """Simulates sizes of ``fleet``."""

        def run(jobs: Sequence[Job]) -> list[Draw]:
            return list(self._pool.map(draw, repeat(fleet), jobs))

        return run


@contextmanager
def processes() -> Generator[Processes]:
    """As many processes as there are cores for us, until the block ends."""
    # A simulation makes no cycles worth collecting before its process ends.
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), initializer=gc.disable) as pool:
        yield Processes(pool)
