"""A profile written by hand: the times of each stage, as a person states them.

It stands in a fleet file, or in a file of its own that fleet files name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Meta, Struct

from takt.core.model import Model
from takt.core.profile import Profile, Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.units import ms

__all__ = ["HandMadeArchitecture", "HandMadeProfile", "HandMadeSlowdown"]

# Upper limits also refuse `.inf`; a share is at least 1/100 000 of a device.
_Time = Annotated[float, Meta(ge=1e-6, le=1e7)]
_Size = Annotated[int, Meta(ge=1, le=65_536)]
_Units = Annotated[int, Meta(ge=1, le=100_000)]
_Factor = Annotated[float, Meta(ge=1, le=1_000)]


class HandMadeArchitecture(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times of one architecture, alone on the whole device."""

    prefix_ms: Annotated[dict[_Size, _Time], Meta(min_length=1)]
    """Prefix time by batch size."""
    denoise_ms: dict[_Size, _Time] = {}
    """Time of the whole denoise loop by batch size; empty for a single-pass policy."""

    def time_ms(self, stage: Stage, size: int) -> float:
        """Time of one batch.

        Raises:
            ConfigError: It is not in the table.
        """
        table = self.prefix_ms if stage is Stage.PREFIX else self.denoise_ms
        if size not in table:
            known = ", ".join(map(str, sorted(table))) or "none"
            raise ConfigError(f"no {stage.name.lower()}_ms for batch size {size}; sizes: {known}")
        return table[size]


class HandMadeSlowdown(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much longer a launch takes beside one of the other stage, at least 1."""

    prefix: _Factor = 1.0
    """Of a prefix launch."""
    denoise: _Factor | dict[_Units, _Factor] = 1.0
    """One figure, or one for each share the prefix may be held to."""

    def of_denoise(self, share: int) -> float:
        """Slowdown of a denoise launch beside a prefix launch of ``share`` units.

        Raises:
            ConfigError: The share is not in the table.
        """
        if not isinstance(self.denoise, dict):
            return self.denoise
        if share not in self.denoise:
            raise ConfigError(f"slowdown.denoise: no figure for a share of {share}")
        return self.denoise[share]


class HandMadeProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device as a person describes it."""

    architectures: Annotated[dict[str, HandMadeArchitecture], Meta(min_length=1)]
    units: _Units = 1
    """Units of the device: streaming multiprocessors, cores."""
    shares: Annotated[tuple[_Units, ...], Meta(max_length=64)] = ()
    """Shares a prefix launch may be held to; the whole device when absent."""
    share_exponent: Annotated[float, Meta(ge=0, le=1)] = 0.95
    """A prefix launch held to share s takes ``(units / s) ** share_exponent`` times as long."""
    slowdown: HandMadeSlowdown = HandMadeSlowdown()

    def profile(self, models: tuple[Model, ...]) -> Profile:
        """Tabulate what ``models`` can launch.

        Raises:
            ConfigError: An architecture or a batch size of theirs is missing.
        """
        shares = self.shares or (self.units,)
        prefixes = dict(self._times(models, Stage.PREFIX, shares))
        denoises = dict(self._times(models, Stage.DENOISE, (self.units,)))
        slowdown: dict[tuple[Work, Work], float] = {}
        for prefix in prefixes:
            for denoise in denoises:
                slowdown[prefix, denoise] = self.slowdown.prefix
                slowdown[denoise, prefix] = self.slowdown.of_denoise(prefix.share)
        return Profile(
            units=self.units, shares=shares, solo={**prefixes, **denoises}, slowdown=slowdown
        )

    def _times(
        self, models: tuple[Model, ...], stage: Stage, shares: tuple[int, ...]
    ) -> Iterator[tuple[Work, int]]:
        for model in models:
            architecture = _find(self.architectures, model.architecture)
            for size in model.sizes(stage):
                time_ms = architecture.time_ms(stage, size)
                for share in shares:
                    factor = (self.units / share) ** self.share_exponent
                    work = Work(model.architecture, stage, 0, size, share)
                    yield work, ms(time_ms * factor)


def _find(table: Mapping[str, HandMadeArchitecture], name: str) -> HandMadeArchitecture:
    if name not in table:
        raise ConfigError(f"no architecture {name!r}; it has: {', '.join(sorted(table))}")
    return table[name]
