"""How well a median is known: its order-statistics interval, and when to stop repeating.

Times of launches have long tails and no known shape, so the interval assumes none. Of ``n`` sorted
times the ``r``-th and the ``r``-th from the end enclose the true median unless fewer than ``r`` of
them fell on one of its sides, a matter of ``n`` throws of a fair coin. Below six times no such
interval has 95 % confidence.

Whoever looks at an interval after every run and stops at the first narrow one stops too soon. Looks
are therefore a third of the runs apart.

Start reading at :meth:`Enough.of`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from takt.errors import ConfigError
from takt.units import SECOND, Nanos

__all__ = ["CONFIDENCE", "FEWEST", "Enough", "Median", "median_of"]

CONFIDENCE = 0.95
"""Confidence of the intervals."""
FEWEST = 3
"""Runs that every entry gets, whatever time they take."""
_FIRST_LOOK = 6
_LOOK_AGAIN = 4 / 3
_MOST_ERROR = 0.5


class Median(NamedTuple):
    """The median of times that were measured."""

    value: Nanos
    low: Nanos
    """Lower end of its interval; 0 where there are too few runs for one."""
    high: Nanos
    runs: int

    @property
    def error(self) -> float:
        """The farther end of the interval from the median, over the median; infinite without."""
        if not self.low:
            return math.inf
        return max(self.high - self.value, self.value - self.low) / self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """When an entry has been run often enough."""

    relative_error: float = 0.03
    """Error its median may have."""
    most_runs: int = 60
    """Runs after which it is cut off."""
    most_time: Nanos = 3 * SECOND
    """Time after which it is cut off."""

    def __post_init__(self) -> None:
        if not 0 < self.relative_error < _MOST_ERROR:
            raise ConfigError(
                f"relative_error must lie above 0 and below {_MOST_ERROR},"
                f" got {self.relative_error}"
            )
        if self.most_runs < FEWEST:
            raise ConfigError(f"most_runs must be at least {FEWEST}, got {self.most_runs}")
        if self.most_time <= 0:
            raise ConfigError(f"most_time must be positive, got {self.most_time} ns")

    def of(self, times: Sequence[Nanos], elapsed: Nanos) -> bool:
        """Whether ``times``, measured in ``elapsed``, need no further run."""
        runs = len(times)
        if runs < FEWEST:
            return False
        if runs >= self.most_runs or elapsed >= self.most_time:
            return True
        return _is_look(runs) and self.accepts(median_of(times))

    def accepts(self, median: Median) -> bool:
        """Whether a median is known as well as was asked."""
        return median.error <= self.relative_error


def median_of(times: Sequence[Nanos]) -> Median:
    """The median of at least one time, with its interval."""
    ordered, runs = sorted(times), len(times)
    middle = (ordered[(runs - 1) // 2] + ordered[runs // 2]) // 2
    rank = _rank(runs)
    if not rank:
        return Median(max(middle, 1), 0, 0, runs)
    return Median(max(middle, 1), max(ordered[rank - 1], 1), max(ordered[runs - rank], 1), runs)


@cache
def _rank(runs: int) -> int:
    """Rank of the interval's ends, counted from either side; 0 where none is wide enough."""
    below, rank = 0.0, 0
    while True:
        below += math.comb(runs, rank) / 2**runs
        if 1 - 2 * below < CONFIDENCE:
            return rank
        rank += 1


@cache
def _looks(most: int) -> frozenset[int]:
    looks, runs = {_FIRST_LOOK}, _FIRST_LOOK
    while runs < most:
        runs = math.ceil(runs * _LOOK_AGAIN)
        looks.add(runs)
    return frozenset(looks)


def _is_look(runs: int) -> bool:
    return runs in _looks(1 << (runs - 1).bit_length())
