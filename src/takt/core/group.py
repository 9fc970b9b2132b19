"""The devices a formation drives, and how they belong together.

Most formations drive one device. A *group* has several: replicas that split one physical device
into disjoint shares, devices that run prefixes for another that denoises. The scheduler keeps one
queue of waiting requests for the prefix stage and, for each device that denoises, one per model.
"""

from __future__ import annotations

from dataclasses import dataclass

from takt.errors import ConfigError
from takt.units import Nanos

__all__ = ["ONE_DEVICE", "Group", "Stepping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepping:
    """What a denoise launch costs beyond its computation, and whether it is a single step."""

    is_split: bool = True
    """Whether every denoise step is a launch of its own."""
    inspection: Nanos = 0
    """Time each denoise launch spends on looking who is there, without using the device."""
    packing: Nanos = 0
    """Time each denoise launch spends per row on gathering inputs and scattering outputs."""

    def __post_init__(self) -> None:
        if self.inspection < 0 or self.packing < 0:
            raise ConfigError(
                "inspection and packing must be at least 0,"
                f" got {self.inspection} and {self.packing} ns",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Devices 0, 1, ... of one scheduler."""

    physical: tuple[int, ...] = (0,)
    """For each device, the physical device it is part of. Launches of one physical device slow
    each other down; launches of different ones do not."""
    home: tuple[int, ...] = (0,)
    """For each device, the device that denoises the requests whose prefix ran there. If it is
    another one, the key/value cache moves, which takes the profile's time."""
    stepping: Stepping | None = None
    """None when a denoise launch runs the whole loop and costs what the profile says."""
    forecasts: bool = False
    """Whether the formation asks when running launches will end."""

    @property
    def num_physical(self) -> int:
        """Physical devices in use: what a capacity is divided by."""
        return max(self.physical) + 1


ONE_DEVICE = Group()
"""One device that runs both stages."""
