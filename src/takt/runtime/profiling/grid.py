"""Which pairs of launches are measured, and what is taken for those that are not.

A GPU that serves four models has tens of thousands of pairs: every share, batch size and layout of
a prefix beside every batch size and layout of a denoise loop. What is measured of them, for each
two architectures:

1. A grid: the smallest and the largest batch of either stage, four shares, in one layout of each:
   the one that robots are said to send, or else the one that holds every row.
2. What a scheduler would choose: for every two batch sizes the share with which the pair is over
   soonest. A share that wins on an interpolated time is measured too, until the winners are.

Between grid points speeds are interpolated, linearly in the share and in the logarithm of the batch
sizes: what a launch gets done is near proportional to the units it finds, its time is not. Other
layouts have the speeds of the one that was measured.

Start reading at :func:`grid_pairs` and :func:`all_speeds`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from takt.core.model import Model
from takt.core.profile import FULL_SPEED, PARTS, Profile, Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.units import Nanos

__all__ = [
    "INTERPOLATION",
    "Pair",
    "Speeds",
    "Stages",
    "all_pairs",
    "all_speeds",
    "check_sent",
    "chosen_pairs",
    "full_speeds",
    "grid_pairs",
    "profile_of",
    "solo_works",
    "stages_of",
]

INTERPOLATION = (
    "speeds, linear in the share and in the logarithm of batch sizes; other layouts as the one that"
    " was measured; full where a launch is over within 0.2 ms"
)
"""How pairs that were not measured got their slowdowns, for the profile's header."""
_GRID_SHARES = 4
_PARTS_LEFT = (PARTS, PARTS // 2)
"""How much of a denoise loop may be left when a prefix starts beside it: a lockstep's all, and
what flowing lanes have on average."""

Pair: TypeAlias = tuple[Work, Work]
"""A prefix launch and a denoise launch."""
Speeds: TypeAlias = tuple[int, int]
"""Speeds of both while the other runs, in parts per million."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What of one architecture is captured, over all its models."""

    architecture: str
    layouts: int
    prefix_sizes: tuple[int, ...]
    denoise_sizes: tuple[int, ...]
    paired: int
    """Layout in which pairs are measured."""

    def sizes(self, stage: Stage) -> tuple[int, ...]:
        """Captured batch sizes of ``stage``."""
        return self.prefix_sizes if stage is Stage.PREFIX else self.denoise_sizes


def stages_of(models: Sequence[Model], sent: Mapping[str, int] | None = None) -> list[Stages]:
    """What is captured of each architecture, in the order of its first model.

    Args:
        models: As they are captured.
        sent: By name of a model, the layout of what its robots send; absent, the one that holds
            every row.
    """
    found: dict[str, list[Model]] = {}
    for model in models:
        found.setdefault(model.architecture, []).append(model)
    return [
        Stages(
            architecture=name,
            layouts=max(len(model.holds) for model in same),
            prefix_sizes=tuple(sorted({size for m in same for size in m.prefix_sizes})),
            denoise_sizes=tuple(sorted({size for m in same for size in m.denoise_sizes})),
            paired=_paired(same, sent or {}),
        )
        for name, same in found.items()
    ]


def check_sent(models: Sequence[Model], sent: Mapping[str, int]) -> None:
    """Refuse layouts that robots of ``models`` cannot send.

    Raises:
        ConfigError: There is no such model or layout.
    """
    layouts = {model.name: len(model.holds) for model in models}
    for name, layout in sent.items():
        if name not in layouts:
            raise ConfigError(f"--layout {name}: no such model; there are: {', '.join(layouts)}")
        if not 0 <= layout < layouts[name]:
            raise ConfigError(f"--layout {name}: expected 0..{layouts[name] - 1}, got {layout}")


def _paired(same: Sequence[Model], sent: Mapping[str, int]) -> int:
    """The layout that pairs of an architecture are measured in: the dearest that is sent."""
    return max(sent.get(model.name, len(model.holds) - 1) for model in same)


def solo_works(stages: Sequence[Stages], shares: Sequence[int]) -> Iterator[Work]:
    """Every launch: a prefix on each share, a denoise loop on the whole device."""
    for one, stage in product(stages, Stage):
        held = shares if stage is Stage.PREFIX else shares[-1:]
        for layout, size, share in product(range(one.layouts), one.sizes(stage), held):
            yield Work(one.architecture, stage, layout, size, share)


def all_pairs(stages: Sequence[Stages], shares: Sequence[int]) -> Iterator[Pair]:
    """Every prefix launch with every denoise launch."""
    works = [*solo_works(stages, shares)]
    return product(
        [work for work in works if work.stage is Stage.PREFIX],
        [work for work in works if work.stage is Stage.DENOISE],
    )


def grid_pairs(stages: Sequence[Stages], shares: Sequence[int]) -> Iterator[Pair]:
    """The grid of every two architectures."""
    for one, other in product(stages, stages):
        for sizes in product(_ends(one.prefix_sizes), _ends(other.denoise_sizes)):
            for share in _grid_shares(shares):
                yield _pair(one, other, sizes, share, shares[-1])


def chosen_pairs(
    profile: Profile, stages: Sequence[Stages], parts: Sequence[int] = _PARTS_LEFT
) -> Iterator[Pair]:
    """The pairs that win by ``profile``, with the share that wins; none where nothing can win."""
    units = profile.units
    if len(profile.shares) == 1:
        return
    for one, other in product(stages, stages):
        for sizes in product(one.prefix_sizes, other.denoise_sizes):
            prefix, denoise = _pair(one, other, sizes, units, units)
            for left in parts:
                share = profile.best_share(prefix, denoise, left)
                yield prefix._replace(share=share), denoise


def profile_of(
    units: int, shares: Sequence[int], solo: Mapping[Work, Nanos], speeds: Mapping[Pair, Speeds]
) -> Profile:
    """The profile of these times; speeds are kept to the last digit."""
    works = sorted(solo)
    index = {work: number for number, work in enumerate(works)}
    rows: list[list[int]] = []
    for (prefix, denoise), (of_prefix, of_denoise) in speeds.items():
        rows.append([index[prefix], index[denoise], of_prefix])
        rows.append([index[denoise], index[prefix], of_denoise])
    return Profile.from_json(
        {
            "units": units,
            "shares": list(shares),
            "solo": [[*work, solo[work]] for work in works],
            "speed": rows,
        }
    )


def full_speeds(
    stages: Sequence[Stages], shares: Sequence[int], measured: Mapping[Pair, Speeds]
) -> dict[Pair, Speeds]:
    """The speeds of the pairs in the layouts that are measured, measured or interpolated.

    Args:
        stages: What is captured.
        shares: Shares of a prefix, rising.
        measured: The grid at least.
    """
    speeds: dict[Pair, Speeds] = {}
    for one, other in product(stages, stages):
        for sizes in product(one.prefix_sizes, other.denoise_sizes):
            for share in shares:
                pair = _pair(one, other, sizes, share, shares[-1])
                speeds[pair] = measured.get(pair) or _between(one, other, pair, shares, measured)
    return speeds


def all_speeds(
    stages: Sequence[Stages], shares: Sequence[int], measured: Mapping[Pair, Speeds]
) -> dict[Pair, Speeds]:
    """The speeds of every pair; as :func:`full_speeds` in every layout."""
    layouts = {one.architecture: range(one.layouts) for one in stages}
    speeds: dict[Pair, Speeds] = {}
    for (prefix, denoise), found in full_speeds(stages, shares, measured).items():
        for here, there in product(layouts[prefix.architecture], layouts[denoise.architecture]):
            like = prefix._replace(layout=here), denoise._replace(layout=there)
            speeds[like] = measured.get(like, found)
    return speeds


def _pair(one: Stages, other: Stages, sizes: tuple[int, int], share: int, units: int) -> Pair:
    """A pair in the layouts that are measured."""
    prefix = Work(one.architecture, Stage.PREFIX, one.paired, sizes[0], share)
    return prefix, Work(other.architecture, Stage.DENOISE, other.paired, sizes[1], units)


def _ends(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((sizes[0], sizes[-1]))) if sizes else ()


def _grid_shares(shares: Sequence[int]) -> tuple[int, ...]:
    """Shares about equally far apart, the smallest and the whole device among them."""
    last = len(shares) - 1
    places = (round(step * last / (_GRID_SHARES - 1)) for step in range(_GRID_SHARES))
    return tuple(dict.fromkeys(shares[place] for place in places))


def _between(
    one: Stages,
    other: Stages,
    pair: Pair,
    shares: Sequence[int],
    measured: Mapping[Pair, Speeds],
) -> Speeds:
    """Speeds between the grid points around a pair."""
    prefix, denoise = pair
    corners = [
        (weight * prefix_weight * denoise_weight, (prefix_size, denoise_size), share)
        for prefix_size, prefix_weight in _around(_ends(one.prefix_sizes), prefix.size, True)
        for denoise_size, denoise_weight in _around(_ends(other.denoise_sizes), denoise.size, True)
        for share, weight in _around(_grid_shares(shares), prefix.share, False)
    ]
    of_prefix = of_denoise = 0.0
    for weight, sizes, share in corners:
        speeds = measured[_pair(one, other, sizes, share, shares[-1])]
        of_prefix += weight * speeds[0]
        of_denoise += weight * speeds[1]
    return _bounded(of_prefix), _bounded(of_denoise)


def _around(points: Sequence[int], at: int, is_log: bool) -> list[tuple[int, float]]:
    """The points below and above ``at`` with their weights."""
    place = bisect_right(points, at)
    if place == len(points) or points[place - 1] == at:
        return [(points[place - 1], 1.0)]
    low, high = points[place - 1], points[place]
    above = math.log(at / low) / math.log(high / low) if is_log else (at - low) / (high - low)
    return [(low, 1 - above), (high, above)]


def _bounded(speed: float) -> int:
    return min(max(round(speed), 1), FULL_SPEED)
