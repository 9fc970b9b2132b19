"""Forms the next batch of a stage: which queue, which rows, which captured shape.

All formations take their batches from here, so the lateness rule lives in one place: a hopeless
request fills a place that would stay empty, or a batch that no feasible request waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from takt.core.disciplines import Discipline
from takt.core.launch import Lane, Launch, lane_of
from takt.core.model import Model
from takt.core.profile import CoRun, Profile, Work
from takt.core.queue import Queue
from takt.core.request import Request, Stage
from takt.units import Nanos

__all__ = ["Batch", "View", "largest_work", "next_batch", "whole_batch"]


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
    requests: tuple[Request, ...]
    size: int
    layout: int

    def work(self, share: int) -> Work:
        """Key of this batch in the profile when held to ``share``."""
        return Work(self.model.architecture, self.stage, self.layout, self.size, share)

    def launch(self, share: int, *, device: int = 0) -> Launch:
        """Put the batch on the lane of its stage."""
        return Launch(
            lane_of(device, self.stage),
            self.model.name,
            tuple([request.seq for request in self.requests]),
            self.size,
            self.layout,
            share,
        )


def next_batch(view: View, stage: Stage, *, device: int = 0) -> Batch | None:
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
    return _batch(queue, min(size, able), size)


def whole_batch(view: View, stage: Stage, *, device: int = 0) -> Batch | None:
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
    queues = view.queues[stage and stage + device]
    chosen, is_only = _first_feasible(queues, view.discipline)
    if chosen is not None:
        # While no feasible request of another model waits, hopeless ones may enlarge the batch.
        return chosen, len(chosen) if is_only else len(chosen.feasible)
    for queue in queues:
        if queue.hopeless and (chosen is None or queue.hopeless[0] < chosen.hopeless[0]):
            chosen = queue
    return chosen, 0 if chosen is None else len(chosen.hopeless)


def _first_feasible(queues: Sequence[Queue], discipline: Discipline) -> tuple[Queue | None, bool]:
    """The queue with the lowest key, and whether it alone has a feasible request."""
    first, lowest, is_only = None, 0, True
    for queue in queues:
        if not queue.feasible:
            continue
        if first is None:
            first, lowest = queue, discipline(queue)
            continue
        is_only = False
        key = discipline(queue)
        if key < lowest or (key == lowest and queue.feasible[0] < first.feasible[0]):
            first, lowest = queue, key
    return first, is_only


def _batch(queue: Queue, rows: int, size: int) -> Batch:
    requests = tuple([entry[2] for entry in queue.head(rows)])
    model, layout = queue.model, 0
    if len(model.holds) > 1:
        layout = model.holding_layout([request.layout for request in requests])
    return Batch(model, queue.stage, requests, size, layout)
