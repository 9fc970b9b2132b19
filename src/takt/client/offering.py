"""Says what a request offers of the queue, so that the next chunk continues it.

The server draws a new chunk to what it is offered, so that must be what the robot will really do:
the queued actions as they are, blended and within the limits, as far as they are young enough when
their turn comes, and all of one model. Whatever is in doubt is not offered; the chunk then starts
free, as from a server that knows nothing of leftovers. Whether the server is asked with it is for
the sender, which knows the model at the other end (:mod:`takt.client.sender`).

Start reading at :meth:`Offering.leftover`.
"""

from takt.client.answer import ActionArray
from takt.client.leftover import Leftover
from takt.client.loop_settings import LoopSettings
from takt.errors import UsageError
from takt.robot.action_queue import ActionQueue
from takt.robot.blending import rows_between
from takt.robot.latency import LatencyEstimate
from takt.units import Nanos

__all__ = ["Offering"]


class Offering:
    """One loop's; :class:`~takt.client.motion.Motion` makes and uses it.

    Args:
        queue: What the robot executes.
        latency: How long answers take, from asking.
        settings: How the robot is driven.
    """

    def __init__(
        self, queue: ActionQueue[ActionArray], latency: LatencyEstimate, settings: LoopSettings
    ) -> None:
        self._queue = queue
        self._latency = latency
        self._settings = settings
        self._digest: str | None = None  # of the model that made the newest part of the queue
        self._mixed_until = 0  # before this timestep, another model's actions are mixed in
        self._has_failed = False

    def joined(self, digest: str | None) -> None:
        """A chunk has joined the queue.

        Args:
            digest: Of the model that made it; None: nobody said.
        """
        queued = self._queue.queued
        blended_end = 0 if queued is None else queued.blended_end
        is_same = digest == self._digest
        self._mixed_until = min(self._mixed_until, blended_end) if is_same else blended_end
        self._digest = digest
        self._has_failed = False

    def failed(self) -> None:
        """An observation got no answer, and what it offered may be why: nothing is offered before
        another one got its own.
        """
        self._has_failed = True

    def leftover(self, now: Nanos) -> Leftover | None:
        """What is left for an observation that is made now, before this tick's action.

        Returns:
            The leftover; None when there is nothing to offer, or while it is not known which model
            made it or how long an answer takes.
        """
        digest, steps = self._digest, self._latency.steps(self._settings.action_period)
        if not self._settings.leftovers or self._has_failed or digest is None or steps is None:
            return None
        rows = self._rows(now)
        if rows is None:
            return None
        try:
            return Leftover(
                actions=rows, model_digest=digest, inference_delay=min(steps, len(rows))
            )
        except UsageError:  # numbers beyond 32 bits; the robot's chunk must not depend on them
            return None

    def _rows(self, now: Nanos) -> ActionArray | None:
        """The queued actions that are executed if no chunk comes; None: none of one model."""
        plan, first = self._queue.queued, self._queue.next_timestep
        if plan is None or plan.origin is None or first < self._mixed_until:
            return None
        left = plan.origin.observed + self._settings.contract.max_action_age - now
        young = left // self._settings.action_period + 1
        return rows_between(plan, first, min(plan.end, first + young)) if young > 0 else None
