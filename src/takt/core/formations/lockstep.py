"""A prefix launch and a denoise launch of independent requests, side by side.

The two start together and the next two start when both have ended. While they run, the prefix is
held to a share of the device, so that the denoise launch always finds free units; the share comes
from the profile of the pair and changes only at a start.

With gathering the denoise launch may be left out of a lockstep: the prefix then runs alone at full
speed, and a later denoise launch has more rows (:mod:`takt.core.gathering`).

Source: Robion (arXiv 2609.12075); gathering is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from takt.core.batching import Batch, View, largest_work, next_batch, whole_batch
from takt.core.gathering import Gathering, Joining
from takt.core.group import ONE_DEVICE, Group
from takt.core.launch import NOTHING, Decision
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.units import Nanos

__all__ = ["Lockstep"]

_PREFIX, _DENOISE = Stage.PREFIX, Stage.DENOISE  # see takt.core.scheduler


@dataclass(frozen=True, slots=True)
class Lockstep:
    """Both lanes start together; a stage that has no partner gets the whole device.

    Attributes:
        gathering: Rows a denoise launch is held back for, while that makes nobody late; 0 for
            never.
        static_share: Units every prefix launch is held to, with or without a partner; None takes
            the best share of each pair. For comparisons: the whole device is no share at all.
    """

    gathering: int = 0
    static_share: int | None = None

    def __post_init__(self) -> None:
        Gathering(self.gathering)
        if self.gathering and self.static_share is not None:
            raise ConfigError("gathering reckons with the best share; leave static_share out")

    @property
    def group(self) -> Group:
        """One device."""
        return ONE_DEVICE

    def expected(self, profile: Profile, model: Model, layout: int) -> tuple[Nanos, Nanos]:
        """Largest batches of both stages beside each other: the next lockstep waits for both."""
        prefix = largest_work(model, Stage.PREFIX, layout, self._alone(profile))
        if model.single_pass:
            return profile.solo(prefix), 0
        denoise = largest_work(model, Stage.DENOISE, layout, profile.units)
        share = self.static_share or profile.best_share(prefix, denoise)
        ends = profile.pair_ends(prefix._replace(share=share), denoise)
        return max(ends), ends[1]

    def decide(self, view: View, now: Nanos) -> Decision:
        """Start the next pair once both lanes are idle."""
        if view.running:
            return NOTHING
        prefix = next_batch(view, _PREFIX)
        # What was gathered must go in one launch: see takt.core.gathering.
        denoise = (whole_batch if self.gathering else next_batch)(view, _DENOISE)
        if prefix is None or denoise is None or self._may_wait(view, denoise, prefix, now):
            return self._start_alone(view.profile, prefix, denoise)
        units = view.profile.units
        share = self.static_share or view.profile.best_share(
            prefix.work(units), denoise.work(units)
        )
        return Decision((prefix.launch(share), denoise.launch(units)))

    def _may_wait(self, view: View, denoise: Batch, prefix: Batch, now: Nanos) -> bool:
        """Whether the denoise launch may wait for the rows of ``prefix``."""
        if not self.gathering:
            return False
        alone = view.profile.solo(prefix.work(self._alone(view.profile)))
        joining = Joining.of(prefix, now + alone)
        return Gathering(self.gathering).latest_start(view, denoise, joining, now) is not None

    def _start_alone(
        self, profile: Profile, prefix: Batch | None, denoise: Batch | None
    ) -> Decision:
        if prefix is not None:
            return Decision((prefix.launch(self._alone(profile)),))
        return NOTHING if denoise is None else Decision((denoise.launch(profile.units),))

    def _alone(self, profile: Profile) -> int:
        return self.static_share or profile.units
