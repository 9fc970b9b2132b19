"""Prefix, then denoise, of one batch; on the whole device, or on each of several replicas."""

from __future__ import annotations

from dataclasses import dataclass

from takt.core.batching import View, largest_work, next_batch, whole_batch
from takt.core.group import Group
from takt.core.launch import NOTHING, Decision, Lane
from takt.core.model import Model
from takt.core.profile import FULL_SPEED, Profile, Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.units import Nanos

__all__ = ["Monolithic"]


@dataclass(frozen=True, slots=True)
class Monolithic:
    """The pipeline of today's servers: one batch at a time goes through both stages.

    Attributes:
        replicas: Copies of the pipeline on disjoint shares of the device, all fed from the same
            queues. The share is the largest one of the profile of which so many fit.
    """

    replicas: int = 1

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ConfigError(f"replicas must be at least 1, got {self.replicas}")

    @property
    def group(self) -> Group:
        """One device per replica, all parts of the same physical device."""
        return Group(physical=(0,) * self.replicas, home=tuple(range(self.replicas)))

    def expected(self, profile: Profile, model: Model, layout: int) -> tuple[Nanos, Nanos]:
        """Both stages of a full batch, one after the other, beside replicas that do the same."""
        prefix = largest_work(model, Stage.PREFIX, layout, self._share(profile))
        if model.single_pass:
            return self._time(profile, prefix), 0
        size = model.holding_size(Stage.DENOISE, prefix.size)
        denoise = prefix._replace(stage=Stage.DENOISE, size=size)
        return self._time(profile, prefix), self._time(profile, denoise)

    def decide(self, view: View, now: Nanos) -> Decision:
        """On an idle replica denoise the batch whose prefix has ended, else begin the next one."""
        del now
        for device in range(self.replicas):
            if not any(Lane(device, stage) in view.running for stage in Stage):
                # Requests are READY only between the two halves of one batch.
                batch = whole_batch(view, Stage.DENOISE, device=device)
                batch = batch or next_batch(view, Stage.PREFIX)
                if batch is not None:
                    share = self._share(view.profile)
                    return Decision((batch.launch(share, device=device),))
        return NOTHING

    def _share(self, profile: Profile) -> int:
        fitting = [share for share in profile.shares if share * self.replicas <= profile.units]
        if not fitting:
            raise ConfigError(f"the profile has no share of which {self.replicas} fit")
        return fitting[-1]

    def _time(self, profile: Profile, work: Work) -> Nanos:
        """Time beside other replicas that run the same."""
        time = profile.solo(work)
        for _ in range(self.replicas - 1):
            time = time * FULL_SPEED // profile.speed(work, work)
        return time
