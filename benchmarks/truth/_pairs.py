"""Compares contestants that took turns: who is best, and how far another one is from it.

The best of several noisy figures is partly the luckiest one, so the best is picked on one half of
the rounds and the ratio to it is taken on the other. Within a round contestants met the same mood
of the machine and the same phases of the robots; therefore ratios are taken pair by pair.

Start reading at :func:`compare`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

__all__ = ["Comparison", "Scores", "bootstrap_interval", "compare", "halves", "paired_ratios"]

Scores: TypeAlias = Mapping[tuple[int, int], float]
"""Figures of a contestant by round and population; larger is better."""

WORTH = 0.95
"""Share of the best one's figure that a choice has to reach."""
_RESAMPLES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How a choice stands beside the best."""

    choice: str
    best: str
    """Best of all contestants on the first half."""
    ratio: float
    """Median of the second half's ratios, choice over best."""
    interval: tuple[float, float]
    """95 % of the medians of resampled ratios."""
    pairs: int
    """Ratios."""

    @property
    def holds(self) -> bool:
        """Whether the choice is the best one, or as good as."""
        return self.choice == self.best or self.ratio >= WORTH


def halves(rounds: Sequence[int]) -> tuple[list[int], list[int]]:
    """Every other round: those the best is picked on, and those it is compared on."""
    ordered = sorted(set(rounds))
    return ordered[::2], ordered[1::2]


def paired_ratios(ours: Scores, theirs: Scores, rounds: Sequence[int]) -> list[float]:
    """Our figure over theirs, for every pair of these rounds in which they have one."""
    keys = sorted(key for key in ours.keys() & theirs.keys() if key[0] in rounds)
    return [ours[key] / theirs[key] for key in keys if theirs[key] > 0]


def bootstrap_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """95 % interval of the median, from resampling ``values`` with replacement."""
    draws = np.random.default_rng(seed).choice(np.array(values), (_RESAMPLES, len(values)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    return float(low), float(high)


def compare(scores: Mapping[str, Scores], choice: str) -> Comparison | None:
    """How ``choice`` stands beside the best; None while there is no full pair of halves.

    Args:
        scores: Figures of all contestants, the choice among them.
        choice: One of them.
    """
    complete = set.intersection(*({key[0] for key in found} for found in scores.values()))
    pick_on, compare_on = halves(sorted(complete))
    means = {
        name: statistics.fmean([v for k, v in found.items() if k[0] in pick_on] or [0.0])
        for name, found in scores.items()
    }
    best = max(means, key=means.__getitem__)
    ratios = paired_ratios(scores[choice], scores[best], compare_on)
    if not ratios:
        return None
    return Comparison(
        choice=choice,
        best=best,
        ratio=statistics.median(ratios),
        interval=bootstrap_interval(ratios),
        pairs=len(ratios),
    )
