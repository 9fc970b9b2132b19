"""Says when a denoise launch may wait for more rows.

A denoise loop reads all its weights at every step, so rows that join are nearly free, while a
launch that starts at once holds the device for the sake of few. A launch may wait for the prefix
launch that runs or starts now, whose rows then join it, if by the cost model everybody who waits
is still on time. Nothing else is waited for: not requests that may or may not arrive.

The condition is on the safe side, so that waiting is never what makes a request late:

- all who wait to be denoised, and those who join, fit into one launch of one model, so that none
  of them has to wait for a second one;
- that launch is taken to last as long as beside the prefix that slows it down most, and where
  the prefix lane may start again meanwhile, beside one such prefix after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from takt.core.batching import Batch, View
from takt.core.launch import Launch
from takt.core.model import Model
from takt.core.profile import FULL_SPEED, PARTS, Profile, Work
from takt.core.queue import Queue
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.units import Nanos

__all__ = ["Gathering", "Joining"]


class Joining(NamedTuple):
    """Rows of a prefix launch, which will wait to be denoised when it ends."""

    model: str
    rows: int
    layout: int
    until: Nanos
    """Instant at which the launch ends."""

    @classmethod
    def of(cls, launch: Batch | Launch, until: Nanos) -> Joining:
        """The rows of a prefix that ends at ``until``."""
        model = launch.model if isinstance(launch, Launch) else launch.model.name
        return cls(model, len(launch.requests), launch.layout, until)


@dataclass(frozen=True, slots=True)
class Gathering:
    """Holds a denoise launch back while it has fewer than ``rows`` rows; 0 never does."""

    rows: int
    flows: bool = False
    """Whether the prefix lane may start again while the denoise launch runs."""

    def __post_init__(self) -> None:
        if self.rows < 0:
            raise ConfigError(f"gathering must be at least 0 rows, got {self.rows}")

    def latest_start(
        self, view: View, denoise: Batch, joining: Joining, now: Nanos
    ) -> Nanos | None:
        """Instant until which ``denoise`` may wait for the rows of ``joining``.

        Returns:
            An instant after ``now`` and not before ``joining.until``, or None when the launch
            must not wait.
        """
        waiting = [queue for queue in view.queues[Stage.DENOISE] if len(queue)]
        if len(denoise.requests) >= self.rows or len(waiting) != 1:
            return None
        model, queue = denoise.model, waiting[0]
        rows = len(queue) + joining.rows
        if joining.model != model.name or rows > model.denoise_sizes[-1]:
            return None
        layout = model.holding_layout([denoise.layout, joining.layout])
        time = self._slowest(view, model, layout, rows)
        # Some of the hopeless can be on time after all, if nothing comes in between.
        soonest = now + view.profile.solo(denoise.work(view.profile.units))
        latest = [entry[2].latest for entry in queue.feasible]
        latest += [entry[2].latest for entry in queue.hopeless if entry[2].latest >= soonest]
        start = min(latest, default=soonest) - time
        # A prefix that overruns its forecast has no end to wait for any more.
        return start if start >= joining.until and start > now else None

    def _slowest(self, view: View, model: Model, layout: int, rows: int) -> Nanos:
        """Time of a denoise launch beside the prefix launches that slow it down most."""
        profile = view.profile
        size = model.holding_size(Stage.DENOISE, rows)
        work = Work(model.architecture, Stage.DENOISE, layout, size, profile.units)
        known = view.slowest.get(work)
        if known is None:
            prefixes = [
                prefix for queue in view.queues[Stage.PREFIX] for prefix in _prefixes(view, queue)
            ]
            if self.flows:
                known = max(_never_alone(profile, prefix, work) for prefix in prefixes)
            else:
                known = max(_in_a_pair(profile, prefix, work) for prefix in prefixes)
            view.slowest[work] = known
        return known


def _prefixes(view: View, queue: Queue) -> list[Work]:
    """Every prefix launch of a model, on the whole device."""
    model = queue.model
    return [
        Work(model.architecture, Stage.PREFIX, layout, size, view.profile.units)
        for layout in range(len(model.holds))
        for size in model.prefix_sizes
    ]


def _in_a_pair(profile: Profile, prefix: Work, denoise: Work) -> Nanos:
    """Time of ``denoise`` when ``prefix`` starts with it and nothing follows."""
    share = profile.best_share(prefix, denoise)
    return profile.pair_ends(prefix._replace(share=share), denoise)[1]


def _never_alone(profile: Profile, prefix: Work, denoise: Work) -> Nanos:
    """Time of ``denoise`` when launches like ``prefix`` follow each other beside it."""
    shares = {profile.best_share(prefix, denoise, left) for left in range(1, PARTS + 1)}
    speed = min(profile.speed(denoise, prefix._replace(share=share)) for share in shares)
    return -(-profile.solo(denoise) * FULL_SPEED // speed)
