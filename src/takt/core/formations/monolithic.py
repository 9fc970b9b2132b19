"""Prefix, then denoise, of one batch on the whole device."""

from __future__ import annotations

from dataclasses import dataclass

from takt.core.batching import View, largest_work, next_batch, whole_batch
from takt.core.launch import NOTHING, Decision
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.request import Stage
from takt.units import Nanos

__all__ = ["Monolithic"]


@dataclass(frozen=True, slots=True)
class Monolithic:
    """The pipeline of today's servers: one batch at a time goes through both stages."""

    def expected(self, profile: Profile, model: Model, layout: int) -> tuple[Nanos, Nanos]:
        """Both stages of a full batch, one after the other, alone on the device."""
        prefix = largest_work(model, Stage.PREFIX, layout, profile.units)
        if model.single_pass:
            return profile.solo(prefix), 0
        size = model.holding_size(Stage.DENOISE, prefix.size)
        denoise = prefix._replace(stage=Stage.DENOISE, size=size)
        return profile.solo(prefix), profile.solo(denoise)

    def decide(self, view: View, now: Nanos) -> Decision:
        """Denoise the batch whose prefix has ended, else begin the next batch."""
        del now
        if view.running:
            return NOTHING
        # Requests are READY only between the two halves of one batch: nothing else may start.
        batch = whole_batch(view, Stage.DENOISE) or next_batch(view, Stage.PREFIX)
        if batch is None:
            return NOTHING
        return Decision((batch.launch(view.profile.units),))
