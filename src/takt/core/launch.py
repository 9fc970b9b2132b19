"""What a decision consists of."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from takt.core.profile import Work, work_of
from takt.core.request import Stage
from takt.units import Nanos

__all__ = ["NOTHING", "Decision", "Lane", "Launch", "lane_of"]


class Lane(NamedTuple):
    """One stage of one device: a CUDA stream, or a set of cores. It runs one launch at a time."""

    device: int
    """Number of the device within the worker's group."""
    stage: Stage


@cache
def lane_of(device: int, stage: Stage) -> Lane:
    """The lane of ``stage``; there are few, and each is named at every start."""
    return Lane(device, stage)


class Launch(NamedTuple):
    """One batch of one model put on one lane. While it runs, the lane is its identity."""

    lane: Lane
    model: str
    requests: tuple[int, ...]
    """Numbers of the requests in the batch, in queue order; row ``i`` belongs to the ``i``-th."""
    size: int
    """Captured batch size that runs; rows beyond the requests are padding."""
    layout: int
    """Captured layout that runs."""
    share: int
    """Units of the device the launch is held to."""

    def work(self, architecture: str) -> Work:
        """Key of this launch in the profile."""
        lane, _, _, size, layout, share = self
        return work_of(architecture, lane.stage, layout, size, share)


class Decision(NamedTuple):
    """What to run now, and when to ask again if nothing happens before."""

    launches: tuple[Launch, ...] = ()
    wake_at: Nanos | None = None


NOTHING = Decision()
"""The decision to start nothing and to wait for an event."""
