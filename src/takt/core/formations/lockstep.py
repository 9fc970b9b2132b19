"""A prefix launch and a denoise launch of independent requests, side by side.

The two start together and the next two start when both have ended. While they run, the prefix is
held to a share of the device, so that the denoise launch always finds free units; the share comes
from the profile of the pair and changes only at a start.

Source: Robion (arXiv 2609.12075).
"""

from __future__ import annotations

from dataclasses import dataclass

from takt.core.batching import View, largest_work, next_batch
from takt.core.launch import NOTHING, Decision
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.request import Stage
from takt.units import Nanos

__all__ = ["Lockstep"]


@dataclass(frozen=True, slots=True)
class Lockstep:
    """Both lanes start together; a stage that has no partner gets the whole device."""

    def expected(self, profile: Profile, model: Model, layout: int) -> tuple[Nanos, Nanos]:
        """Largest batches of both stages beside each other: the next lockstep waits for both."""
        prefix = largest_work(model, Stage.PREFIX, layout, profile.units)
        if model.single_pass:
            return profile.solo(prefix), 0
        denoise = largest_work(model, Stage.DENOISE, layout, profile.units)
        share = profile.best_share(prefix, denoise)
        ends = profile.pair_ends(prefix._replace(share=share), denoise)
        return max(ends), ends[1]

    def decide(self, view: View, now: Nanos) -> Decision:
        """Start the next pair once both lanes are idle."""
        del now
        if view.running:
            return NOTHING
        units = view.profile.units
        prefix = next_batch(view, Stage.PREFIX)
        denoise = next_batch(view, Stage.DENOISE)
        if prefix is not None and denoise is not None:
            share = view.profile.best_share(prefix.work(units), denoise.work(units))
            return Decision((prefix.launch(share), denoise.launch(units)))
        alone = prefix or denoise
        return NOTHING if alone is None else Decision((alone.launch(units),))
