"""A profile written by hand: the times of each stage, as a person states them.

It stands in a fleet file, or in a file of its own that fleet files name. Nothing is guessed: what
only some formations need (``steps``, ``transfer_ms``, ``replicas``) may be left out, and those
formations are then refused by :meth:`HandMadeProfile.check`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Annotated

from msgspec import Meta, Struct

from takt.core.model import Model
from takt.core.profile import Profile, Work
from takt.core.request import Stage
from takt.core.trace import Setup
from takt.errors import ConfigError
from takt.units import ms

__all__ = [
    "HandMadeArchitecture",
    "HandMadeProfile",
    "HandMadeReplicas",
    "HandMadeSlowdown",
    "ReplicaSlowdown",
]

# Upper limits also refuse `.inf`; a share is at least 1/100 000 of a device.
_Time = Annotated[float, Meta(ge=1e-6, le=1e7)]
_Size = Annotated[int, Meta(ge=1, le=65_536)]
_Units = Annotated[int, Meta(ge=1, le=100_000)]
_Factor = Annotated[float, Meta(ge=1, le=1_000)]
_Exponent = Annotated[float, Meta(ge=0, le=1)]


class HandMadeArchitecture(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times of one architecture, alone on the whole device."""

    prefix_ms: Annotated[dict[_Size, _Time], Meta(min_length=1)]
    """Prefix time by batch size."""
    denoise_ms: dict[_Size, _Time] = {}
    """Time of the whole denoise loop by batch size; empty for a single-pass policy."""
    steps: Annotated[int, Meta(ge=1, le=1_000)] | None = None
    """Equal steps of that loop. Only step admission needs it."""
    transfer_ms: Annotated[float, Meta(ge=0, le=1e7)] | None = None
    """Time a row's key/value cache takes to another device. Only formations whose stages run on
    different devices need it."""

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


class ReplicaSlowdown(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much longer a launch takes beside any launch of another replica, at least 1."""

    prefix: _Factor
    """Of a prefix launch."""
    denoise: _Factor
    """Of a denoise launch."""


class HandMadeReplicas(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Copies of the pipeline, each on the largest of the shares of which so many fit."""

    denoise_exponent: _Exponent
    """A denoise launch on share s takes ``(units / s) ** denoise_exponent`` times as long: near 0
    where it waits for memory, near 1 where it computes."""
    slowdown: ReplicaSlowdown


class HandMadeProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device as a person describes it."""

    architectures: Annotated[dict[str, HandMadeArchitecture], Meta(min_length=1)]
    units: _Units = 1
    """Units of the device: streaming multiprocessors, cores."""
    shares: Annotated[tuple[_Units, ...], Meta(max_length=64)] = ()
    """Shares a prefix launch may be held to; the whole device when absent."""
    share_exponent: _Exponent = 0.95
    """A prefix launch held to share s takes ``(units / s) ** share_exponent`` times as long."""
    slowdown: HandMadeSlowdown = HandMadeSlowdown()
    replicas: HandMadeReplicas | None = None
    """What several replicas on disjoint shares cost; only they need it."""

    def stepped(self, models: tuple[Model, ...]) -> tuple[Model, ...]:
        """``models`` with the denoise steps of their architectures.

        Raises:
            ConfigError: An architecture of theirs is missing.
        """
        return tuple(
            replace(model, steps=_find(self.architectures, model.architecture).steps or 1)
            for model in models
        )

    def profile(self, models: tuple[Model, ...]) -> Profile:
        """Tabulate what ``models`` can launch.

        Raises:
            ConfigError: An architecture or a batch size of theirs is missing.
        """
        shares = self._all_shares
        prefixes = dict(self._times(models, Stage.PREFIX, shares))
        denoises = dict(self._times(models, Stage.DENOISE, (self.units,)))
        parts = dict(self._times(models, Stage.DENOISE, self._replica_shares))
        slowdown = dict(self._pairs(prefixes, denoises))
        if self.replicas is not None:
            held = [work for work in prefixes if work.share in self._replica_shares]
            slowdown |= _replica_pairs([*held, *parts], self.replicas.slowdown)
        return Profile(
            units=self.units,
            shares=shares,
            solo={**prefixes, **denoises, **parts},
            slowdown=slowdown,
            transfer={
                (name, 0): ms(architecture.transfer_ms)
                for name, architecture in self.architectures.items()
                if architecture.transfer_ms is not None
            },
        )

    def check(self, setup: Setup) -> None:
        """Refuse a formation that needs times this profile does not state.

        Raises:
            ConfigError: It does; the message names the key.
        """
        looped = [model for model in setup.models if not model.single_pass]
        stepping = setup.group.stepping
        if stepping is not None and stepping.is_split:
            self._need(looped, "steps", f"{setup.formation!r} launches every denoise step")
        if any(device != home for device, home in enumerate(setup.group.home)):
            self._need(looped, "transfer_ms", f"{setup.formation!r} moves each row's cache")
        self._check_replicas(setup)

    def _need(self, models: list[Model], key: str, reason: str) -> None:
        for model in models:
            if getattr(self.architectures[model.architecture], key) is None:
                raise ConfigError(
                    f"architectures.{model.architecture}.{key}: expected a number, since {reason};"
                    " it is missing"
                )

    def _check_replicas(self, setup: Setup) -> None:
        replicas = max(Counter(setup.group.physical).values())
        if replicas == 1:
            return
        shares, most = self._all_shares, self.units // replicas
        if shares[0] > most:
            raise ConfigError(
                f"shares: expected one of at most {most} units, of which {replicas} replicas fit"
                f" into {self.units}; got {', '.join(map(str, shares))}"
            )
        if self.replicas is None:
            raise ConfigError(
                "replicas: expected denoise_exponent and slowdown, since"
                f" {setup.formation!r} runs {replicas} replicas side by side; it is missing"
            )

    @property
    def _all_shares(self) -> tuple[int, ...]:
        return self.shares or (self.units,)

    @property
    def _replica_shares(self) -> tuple[int, ...]:
        """Shares of which at least two fit, where replicas are described."""
        if self.replicas is None:
            return ()
        return tuple(share for share in self._all_shares if 2 * share <= self.units)

    def _times(
        self, models: tuple[Model, ...], stage: Stage, shares: tuple[int, ...]
    ) -> Iterator[tuple[Work, int]]:
        for model in models:
            architecture = _find(self.architectures, model.architecture)
            for size in model.sizes(stage):
                time_ms = architecture.time_ms(stage, size)
                for share in shares:
                    factor = (self.units / share) ** self._exponent(stage)
                    work = Work(model.architecture, stage, 0, size, share)
                    yield work, ms(time_ms * factor)

    def _exponent(self, stage: Stage) -> float:
        if stage is Stage.PREFIX or self.replicas is None:
            return self.share_exponent
        return self.replicas.denoise_exponent

    def _pairs(
        self, prefixes: Mapping[Work, int], denoises: Mapping[Work, int]
    ) -> Iterator[tuple[tuple[Work, Work], float]]:
        """A prefix on any share beside a denoise launch on the whole device."""
        for prefix, denoise in product(prefixes, denoises):
            yield (prefix, denoise), self.slowdown.prefix
            yield (denoise, prefix), self.slowdown.of_denoise(prefix.share)


def _replica_pairs(
    works: list[Work], slowdown: ReplicaSlowdown
) -> Iterator[tuple[tuple[Work, Work], float]]:
    """Any two of ``works`` that are held to the same share."""
    for work, beside in product(works, works):
        if work.share == beside.share:
            is_prefix = work.stage is Stage.PREFIX
            yield (work, beside), slowdown.prefix if is_prefix else slowdown.denoise


def _find(table: Mapping[str, HandMadeArchitecture], name: str) -> HandMadeArchitecture:
    if name not in table:
        raise ConfigError(f"no architecture {name!r}; it has: {', '.join(sorted(table))}")
    return table[name]
