"""Measures a device: what every launch takes alone, and what pairs do to each other.

Every time that is measured is a median known to the stated relative error, or named as cut off. A
slowdown is the ratio of two such medians, so its error is up to twice as large. What is measured of
the pairs, and what the others are taken for, says :mod:`takt.runtime.profiling.grid`.

A launch so brief that the worker's loop runs it itself is measured beside none: it is over before
it could slow another one. Started again and again, it would hold the interpreter that the other
launch needs, as no worker does, and a pair would take half a minute to show nothing.

Start reading at :meth:`Profiler.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from takt.core.profile import FULL_SPEED, Profile, Work
from takt.core.request import Stage
from takt.hardware.measured import MeasuredProfile, ProfileHeader
from takt.runtime.lanes import HAND_OVER
from takt.runtime.models import LoadedModel
from takt.runtime.profiling.bench import Bench
from takt.runtime.profiling.cache import Cache
from takt.runtime.profiling.grid import (
    INTERPOLATION,
    Pair,
    Speeds,
    all_pairs,
    all_speeds,
    chosen_pairs,
    full_speeds,
    grid_pairs,
    profile_of,
    solo_works,
    stages_of,
)
from takt.runtime.profiling.machines import Identity, LoadingMachine
from takt.runtime.profiling.median import CONFIDENCE, Enough, Median

__all__ = ["Profiled", "Profiler", "Progress"]


class Progress(NamedTuple):
    """How far measuring has come."""

    done: int
    known: int
    """Entries known of so far; which shares win is seen only on the way."""
    doing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """What came of it."""

    profile: MeasuredProfile
    solo: dict[Work, Median]
    beside: dict[Pair, tuple[Median, Median]]
    """Times of both sides of the pairs that were measured, each beside the other."""
    num_from_cache: int
    """Entries that were known before."""


class Profiler:
    """Measures the launches of models on a device.

    Args:
        machine: The device.
        models: What is loaded on it.
        enough: How often to repeat.
        cache: What was measured before.
        every_pair: Interpolate nothing.
        sent: By name of a model, the layout of what its robots send: pairs are measured in it.
        progress: Told before each entry.
    """

    def __init__(
        self,
        machine: LoadingMachine,
        models: Sequence[LoadedModel],
        *,
        enough: Enough,
        cache: Cache | None = None,
        every_pair: bool = False,
        sent: Mapping[str, int] | None = None,
        progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._models = tuple(loaded.model for loaded in models)
        self._stages = stages_of(self._models, sent)
        self._units, self._shares = machine.units, machine.shares
        self._bench = Bench(machine, _runners(models, machine.shares), enough)
        self._enough = enough
        self._cache = cache or Cache(None, {})
        self._every_pair = every_pair
        self._progress = progress
        self._solo: dict[Work, Median] = {}
        self._beside: dict[Pair, tuple[Median, Median]] = {}
        self._unhindered: dict[Pair, Speeds] = {}
        """Of the pairs with a side too brief to be measured beside another."""
        self._num_known = 0
        self._num_from_cache = 0

    def run(self, identity: Identity) -> Profiled:
        """Measure everything.

        Args:
            identity: What the times are times of.

        Raises:
            ConfigError: A network failed, or the cache cannot be written.
        """
        works = [*solo_works(self._stages, self._shares)]
        listed = all_pairs if self._every_pair else grid_pairs
        pairs = [*listed(self._stages, self._shares)]
        self._num_known = len(works) + len(pairs)
        for work in works:
            (self._solo[work],) = self._entry(work)
        brief = [pair for pair in all_pairs(self._stages, self._shares) if self._is_brief(pair)]
        self._unhindered = dict.fromkeys(brief, (FULL_SPEED, FULL_SPEED))
        pairs = [pair for pair in pairs if pair not in self._unhindered]
        self._num_known = len(works) + len(pairs)
        self._measure(pairs)
        while chosen := self._chosen():
            self._num_known += len(chosen)
            self._measure(chosen)
        measured = self._measured()
        speeds = all_speeds(self._stages, self._shares, measured) if measured else {}
        return Profiled(
            profile=MeasuredProfile(
                header=self._header(identity),
                models=self._models,
                profile=self._profile(speeds),
                measured_pairs=frozenset(self._beside),
            ),
            solo=self._solo,
            beside=self._beside,
            num_from_cache=self._num_from_cache,
        )

    def _measure(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            of_prefix, of_denoise = self._entry(*pair)
            self._beside[pair] = of_prefix, of_denoise

    def _is_brief(self, pair: Pair) -> bool:
        """Whether either launch is over before it could slow the other."""
        return any(self._solo[work].value < HAND_OVER for work in pair)

    def _entry(self, *works: Work) -> tuple[Median, ...]:
        known = self._cache.find(*works)
        if known is not None and all(map(self._is_known, known)):
            self._num_from_cache += 1
            return known
        done = len(self._solo) + len(self._beside)
        self._progress(Progress(done, self._num_known, " beside ".join(map(_said, works))))
        if len(works) == 1:
            medians: tuple[Median, ...] = (self._bench.alone(works[0]),)
        else:
            medians = self._bench.beside(*works)
        self._cache.keep(medians, *works)
        return medians

    def _is_known(self, median: Median) -> bool:
        """Whether measuring again would not bring more."""
        return self._enough.accepts(median) or median.runs >= self._enough.most_runs

    def _chosen(self) -> list[Pair]:
        """The pairs that a scheduler would choose by what is known now, and that are not known."""
        if not self._beside:
            return []
        known = self._measured()
        speeds = full_speeds(self._stages, self._shares, known)
        chosen = dict.fromkeys(chosen_pairs(self._profile(speeds), self._stages))
        return [pair for pair in chosen if pair not in known]

    def _profile(self, speeds: Mapping[Pair, Speeds]) -> Profile:
        solo = {work: median.value for work, median in self._solo.items()}
        return profile_of(self._units, self._shares, solo, speeds)

    def _measured(self) -> dict[Pair, Speeds]:
        return {**self._unhindered, **{pair: self._speeds(pair) for pair in self._beside}}

    def _speeds(self, pair: Pair) -> Speeds:
        (prefix, denoise), (of_prefix, of_denoise) = pair, self._beside[pair]
        return (
            _speed(self._solo[prefix], of_prefix),
            _speed(self._solo[denoise], of_denoise),
        )

    def _header(self, identity: Identity) -> ProfileHeader:
        num_pairs = sum(1 for _ in all_pairs(self._stages, self._shares))
        entries: list[tuple[str, Iterable[Median]]] = [
            *((_said(work), (median,)) for work, median in self._solo.items()),
            *((" beside ".join(map(_said, pair)), both) for pair, both in self._beside.items()),
        ]
        return ProfileHeader(
            **identity._asdict(),
            relative_error=self._enough.relative_error,
            confidence=CONFIDENCE,
            cut_off=tuple(
                said for said, medians in entries if not all(map(self._enough.accepts, medians))
            ),
            num_pairs_measured=len(self._beside),
            num_pairs_interpolated=num_pairs - len(self._beside),
            interpolation=INTERPOLATION if num_pairs > len(self._beside) else "",
        )


def _runners(models: Sequence[LoadedModel], shares: Sequence[int]) -> dict[Work, LoadedModel]:
    """For each launch the first model that has it captured."""
    runners: dict[Work, LoadedModel] = {}
    for loaded in models:
        for work in solo_works(stages_of([loaded.model]), shares):
            runners.setdefault(work, loaded)
    return runners


def _speed(alone: Median, beside: Median) -> int:
    """Speed beside a launch; nothing is faster beside another one than alone."""
    return min(max(alone.value * FULL_SPEED // beside.value, 1), FULL_SPEED)


def _said(work: Work) -> str:
    held = "" if work.stage is Stage.DENOISE else f" share {work.share}"
    return (
        f"{work.architecture} {work.stage.name.lower()} layout {work.layout} size {work.size}{held}"
    )
