"""Runs a launch again and again on a device's lanes, alone or beside another one.

Lanes, jobs and completions are those of a worker, so a time is what the worker's scheduler would
see: from the start of a launch to its completion, decoding included. Rows are zeros in slots of
our own; what a network computes from them is thrown away, but a launch that fails is an error.

Of two launches side by side, each is started again as soon as it has ended, until both medians are
known: every run of either lies wholly beside runs of the other, however their lengths differ.

Start reading at :meth:`Bench.alone` and :meth:`Bench.beside`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from takt.core.launch import Lane, Launch, lane_of
from takt.core.profile import Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.link.layout import SlotView
from takt.link.messages import SlotRef
from takt.runtime.launches import Completed, HeldRow, Job, Lanes
from takt.runtime.models import LoadedModel, blank_row
from takt.runtime.profiling.median import Enough, Median, median_of
from takt.units import Nanos

__all__ = ["Bench", "End", "Machine"]

_MOST_KEPT = 8
"""Times kept of a launch, over ``most_runs``: a short one has many runs beside a long one."""


class End(NamedTuple):
    """A launch that has ended, and when."""

    completed: Completed
    instant: Nanos


class Machine(Protocol):
    """A device to be measured."""

    @property
    def lanes(self) -> Lanes:
        """What launches run on."""
        ...

    def now(self) -> Nanos:
        """The clock of its launches."""
        ...

    def next_end(self) -> End:
        """The next launch that ends; waits for it."""
        ...


class Bench:
    """Measures the launches of models that are loaded.

    Args:
        machine: The device.
        models: For each launch, a model that has it captured.
        enough: When to stop.
    """

    def __init__(
        self, machine: Machine, models: Mapping[Work, LoadedModel], enough: Enough
    ) -> None:
        self._machine = machine
        self._models = models
        self._enough = enough
        self._most_kept = _MOST_KEPT * enough.most_runs
        self._rows: dict[tuple[str, int], HeldRow] = {}
        self._filled: set[tuple[str, int]] = set()

    def alone(self, work: Work) -> Median:
        """Time of a launch that runs alone.

        Raises:
            ConfigError: The network failed.
        """
        return self._measure([work])[0]

    def beside(self, one: Work, other: Work) -> tuple[Median, Median]:
        """Times of two launches of different stages, each while the other runs.

        Raises:
            ConfigError: A network failed.
        """
        first, second = self._measure([one, other])
        return first, second

    def _measure(self, works: list[Work]) -> list[Median]:
        jobs = {lane_of(0, work.stage): self._job(work) for work in works}
        for job in jobs.values():
            self._fill_cache(job)
        times: dict[Lane, list[Nanos]] = {lane: [] for lane in jobs}
        began = self._machine.now()
        started = {lane: self._start(job) for lane, job in jobs.items()}
        is_enough = False
        while started:
            end = self._next_end()
            lane = end.completed.lane
            took = end.instant - started.pop(lane)
            if is_enough:
                continue  # it ran on alone: the other one was not started again
            if len(times[lane]) <= self._most_kept:
                times[lane].append(took)
            elapsed = end.instant - began
            # The first run of each brings caches and predictors to where they will stay.
            is_enough = all(self._enough.of(taken[1:], elapsed) for taken in times.values())
            if not is_enough:
                started[lane] = self._start(jobs[lane])
        return [median_of(times[lane][1:]) for lane in jobs]

    def _start(self, job: Job) -> Nanos:
        now = self._machine.now()
        self._machine.lanes.start(job)
        return now

    def _next_end(self) -> End:
        end = self._machine.next_end()
        for failure in end.completed.failures.values():
            raise ConfigError(f"a launch failed while it was measured: {failure.sentence}")
        return end

    def _fill_cache(self, job: Job) -> None:
        """Run prefixes into the cache slots that a denoise launch reads, once."""
        launch, key = job.launch, (job.model.model.name, job.launch.layout)
        if launch.lane.stage is Stage.PREFIX or key in self._filled:
            return
        self._filled.add(key)
        model = job.model
        size = model.model.prefix_sizes[0]
        units = launch.share
        for first in range(0, model.model.denoise_sizes[-1], size):
            slots = tuple(range(first, min(first + size, model.kv_slots)))
            filling = Launch(
                lane_of(launch.lane.device, Stage.PREFIX),
                launch.model,
                slots,
                size,
                launch.layout,
                units,
            )
            row = self._row(model, launch.layout)
            rows = (row,) * len(slots)
            self._machine.lanes.start(Job(launch=filling, model=model, rows=rows, kv_slots=slots))
            self._next_end()

    def _job(self, work: Work) -> Job:
        model = self._models[work]
        launch = Launch(
            Lane(0, work.stage),
            model.model.name,
            tuple(range(work.size)),
            work.size,
            work.layout,
            work.share,
        )
        # Denoise launches read the first cache slots, prefix launches write the last.
        last = model.kv_slots
        slots = range(last - work.size, last) if work.stage is Stage.PREFIX else range(work.size)
        rows = (self._row(model, work.layout),) * work.size
        return Job(launch=launch, model=model, rows=rows, kv_slots=tuple(slots))

    def _row(self, model: LoadedModel, layout: int) -> HeldRow:
        key = model.model.name, layout
        held = self._rows.get(key)
        if held is None:
            ref = SlotRef(epoch=1, slot=0, generation=1)
            view = SlotView(memoryview(bytearray(model.slot_layout.slot_bytes)), model.slot_layout)
            view.stamp(ref)
            held = self._rows[key] = HeldRow(blank_row(model.spec, layout), view, ref)
        return held
