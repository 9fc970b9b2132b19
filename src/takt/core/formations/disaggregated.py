"""Several devices run prefixes, one runs the denoise loop of all their requests.

No stage slows the other down, and none can use what the other leaves idle. The key/value cache of
each row crosses from device to device, which takes time and is an event.
"""

from __future__ import annotations

from dataclasses import dataclass

from takt.core.batching import View, largest_work, next_batch
from takt.core.group import Group
from takt.core.launch import NOTHING, Decision, Lane
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.units import Nanos

__all__ = ["Disaggregated"]


@dataclass(frozen=True, slots=True)
class Disaggregated:
    """``k`` devices for the prefix stage, the last one for the denoise stage.

    Attributes:
        prefix_devices: Devices that run prefixes.
    """

    prefix_devices: int = 3

    def __post_init__(self) -> None:
        if self.prefix_devices < 1:
            raise ConfigError(f"prefix_devices must be at least 1, got {self.prefix_devices}")

    @property
    def group(self) -> Group:
        """All devices; the last one is everybody's home."""
        num_devices = self.prefix_devices + 1
        return Group(physical=tuple(range(num_devices)), home=(self.prefix_devices,) * num_devices)

    def expected(self, profile: Profile, model: Model, layout: int) -> tuple[Nanos, Nanos]:
        """Largest batches of both stages alone on their devices, the move between them, and one
        denoise launch that is under way when a row arrives there.
        """
        prefix = largest_work(model, Stage.PREFIX, layout, profile.units)
        if model.single_pass:
            return profile.solo(prefix), 0
        denoise = largest_work(model, Stage.DENOISE, layout, profile.units)
        move, loop = profile.transfer(model.architecture, layout), profile.solo(denoise)
        return profile.solo(prefix) + move + loop, loop

    def decide(self, view: View, now: Nanos) -> Decision:
        """Start the next batch on an idle device of either kind."""
        del now
        units = view.profile.units
        if Lane(self.prefix_devices, Stage.DENOISE) not in view.running:
            batch = next_batch(view, Stage.DENOISE, device=self.prefix_devices)
            if batch is not None:
                return Decision((batch.launch(units, device=self.prefix_devices),))
        for device in range(self.prefix_devices):
            if Lane(device, Stage.PREFIX) not in view.running:
                batch = next_batch(view, Stage.PREFIX)
                if batch is None:
                    break
                return Decision((batch.launch(units, device=device),))
        return NOTHING
