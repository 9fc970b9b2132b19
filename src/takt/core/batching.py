"""Forms the next batch of a stage: which queue, which rows, which captured shape.

All formations take their batches from here, so the lateness rule lives in one place: a hopeless
request fills a place that would stay empty, or a batch that no feasible request waits for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from takt.core.disciplines import Discipline
from takt.core.launch import Lane, Launch, lane_of
from takt.core.model import Model
from takt.core.profile import CoRun, Profile, Work, work_of
from takt.core.queue import Entry, Queue
from takt.core.request import Stage
from takt.units import Nanos

__all__ = ["Batch", "View", "largest_work", "next_batch", "whole_batch"]

_SEQ = itemgetter(1)


@dataclass(slots=True, kw_only=True)
class View:
    """What a formation may look at. Formations read it and change nothing."""

    profile: Profile
    discipline: Discipline
    queues: tuple[tuple[Queue, ...], ...]
    """The prefix queues, then the denoise queues of each device of the group in turn. Where one
    device runs both stages, :class:`~takt.core.request.Stage` is the index."""
    running: dict[Lane, Launch] = field(default_factory=dict[Lane, Launch])
    """What runs on each busy lane."""
    forecast: CoRun[Lane] | None = None
    """What the cost model says of the launches that run, for formations that ask for it."""
    slowest: dict[Work, Nanos] = field(default_factory=dict[Work, Nanos])
    """Worked out by :mod:`takt.core.gathering`, kept because it does not change."""


class Batch(NamedTuple):
    """Rows of one model for one stage, and the captured shape that runs them."""

    model: Model
    stage: Stage
    requests: tuple[int, ...]
    """Numbers of its requests, in queue order."""
    size: int
    layout: int

    def work(self, share: int) -> Work:
        """Key of this batch in the profile when held to ``share``."""
        model, stage, _, size, layout = self
        return work_of(model.architecture, stage, layout, size, share)

    def launch(self, share: int, device: int = 0) -> Launch:
        """Put the batch on the lane of its stage."""
        model, stage, requests, size, layout = self
        return Launch(lane_of(device, stage), model.name, requests, size, layout, share)


def next_batch(view: View, stage: Stage, device: int = 0) -> Batch | None:
    """The batch that goes next on ``stage``: the largest captured size that fills.

    Args:
        view: What may be looked at.
        stage: The stage.
        device: Where the denoise stage would run; all devices take from the same prefix queues.

    Returns:
        The batch, or None when nobody waits.
    """
    queue, able = _next_queue(view, stage, device)
    if queue is None:
        return None
    size = queue.model.filled_size(stage, able)
    return _batch(queue, size if size < able else able, size)


def whole_batch(view: View, stage: Stage, device: int = 0) -> Batch | None:
    """Everybody who waits in the queue that goes next, padded to the next captured size."""
    queue, able = _next_queue(view, stage, device)
    if queue is None:
        return None
    size = queue.model.holding_size(stage, able)
    return _batch(queue, min(size, able), size)


def largest_work(model: Model, stage: Stage, layout: int, share: int) -> Work:
    """The launch of the largest captured batch of ``stage`` with rows of ``layout``."""
    held = model.holding_layout([layout])
    return Work(model.architecture, stage, held, model.sizes(stage)[-1], share)


def _next_queue(view: View, stage: Stage, device: int) -> tuple[Queue | None, int]:
    """The queue that goes next, and how many from its head on may be in the batch."""
    feasible: list[Queue] = []
    hopeless: list[Queue] = []
    for queue in view.queues[stage and stage + device]:
        if queue.feasible:
            feasible.append(queue)
        elif queue.hopeless:
            hopeless.append(queue)
    if len(feasible) > 1:
        first = _first(feasible, view.discipline)
        return first, len(first.feasible)
    if feasible:
        # While no feasible request of another model waits, hopeless ones may enlarge the batch.
        return feasible[0], len(feasible[0])
    if hopeless:
        first = min(hopeless, key=_head_of_hopeless)
        return first, len(first.hopeless)
    return None, 0


def _first(queues: list[Queue], discipline: Discipline) -> Queue:
    """The queue with the lowest key; of equal ones, the one whose head stands first."""
    keys = [*map(discipline, queues)]
    lowest = min(keys)
    if keys.count(lowest) == 1:
        return queues[keys.index(lowest)]
    equals = [queue for queue, key in zip(queues, keys, strict=True) if key == lowest]
    return min(equals, key=_head_of_feasible)


def _head_of_feasible(queue: Queue) -> Entry:
    return queue.feasible[0]


def _head_of_hopeless(queue: Queue) -> Entry:
    return queue.hopeless[0]


def _batch(queue: Queue, rows: int, size: int) -> Batch:
    entries = queue.head(rows)
    model, layout = queue.model, 0
    if len(model.holds) > 1:
        layout = model.holding_layout([entry[2].layout for entry in entries])
    return Batch(model, queue.stage, tuple(map(_SEQ, entries)), size, layout)
