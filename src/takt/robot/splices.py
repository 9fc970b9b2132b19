"""Measures how far two plans lie apart where one takes over from the other.

A robot that sways at every refill does so at these places; the figures tell whether a blend, an
earlier request or a better policy is the cure.

Start reading at :class:`Splice`.
"""

from collections import deque
from dataclasses import dataclass
from typing import cast

import numpy as np

from takt.errors import ConfigError
from takt.robot.action_queue import ChunkOrigin, Junction, TimedChunk
from takt.robot.joints import Vector

__all__ = ["Splice", "SpliceMeter"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Splice:
    """How large one splice is. All arrays have shape ``(action_dim,)``, in the policy's units."""

    timestep: int
    """First timestep executed by the new plan."""
    origin: ChunkOrigin | None
    """Where the chunk that came is from; None: nobody said."""
    overlap: int
    """Timesteps not yet executed that both plans have."""
    step: Vector | None
    """Per joint, from the last executed action to the first of the new plan: what the robot is
    made to do. None: nothing was executed yet."""
    shift: Vector | None
    """Per joint, between the old and the new plan's action for the first timestep: what the merge
    changed. None: the old plan had no action for it."""
    disagreement: Vector | None
    """Per joint, the largest distance between the old plan and the chunk that came, over the
    overlap: what a blend had to bridge. None: nothing overlaps."""


class SpliceMeter:
    """Records the size of every splice of a queue; hand it to the queue as ``on_splice``.

    Args:
        keep: Splices remembered, the latest ones.

    Raises:
        ConfigError: ``keep`` is below 1.
    """

    def __init__(self, *, keep: int = 256) -> None:
        if keep < 1:
            raise ConfigError(f"keep must be at least 1, got {keep}")
        self._splices: deque[Splice] = deque(maxlen=keep)
        self._count = 0

    @property
    def count(self) -> int:
        """Splices so far."""
        return self._count

    @property
    def latest(self) -> Splice | None:
        """The newest splice; None before the first."""
        return self._splices[-1] if self._splices else None

    @property
    def splices(self) -> tuple[Splice, ...]:
        """Those remembered, oldest first."""
        return tuple(self._splices)

    def __call__(self, junction: Junction[Vector]) -> None:
        """Measure a junction."""
        self._count += 1
        self._splices.append(_measured(junction))


def _measured(junction: Junction[Vector]) -> Splice:
    at = junction.timestep
    first = _action(junction.plan, at)
    queued = junction.queued
    shift = disagreement = None
    overlap = 0
    if queued is not None:
        if queued.first_timestep <= at < queued.end:
            shift = _distance(first, _action(queued, at))
        begin = max(at, queued.first_timestep, junction.arrived.first_timestep)
        overlap = max(0, min(queued.end, junction.arrived.end) - begin)
        disagreement = _largest_distance(queued, junction.arrived, begin, overlap)
    return Splice(
        timestep=at,
        origin=junction.arrived.origin,
        overlap=overlap,
        step=None if junction.executed is None else _distance(first, junction.executed),
        shift=shift,
        disagreement=disagreement,
    )


def _action(chunk: TimedChunk[Vector], timestep: int) -> Vector:
    return chunk.actions[timestep - chunk.first_timestep]


def _distance(one: Vector, other: Vector) -> Vector:
    return np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64))


def _largest_distance(
    queued: TimedChunk[Vector], arrived: TimedChunk[Vector], begin: int, overlap: int
) -> Vector | None:
    if not overlap:
        return None
    distances = [
        _distance(_action(queued, t), _action(arrived, t)) for t in range(begin, begin + overlap)
    ]
    return cast("Vector", np.max(distances, axis=0))
