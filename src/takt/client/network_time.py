"""Estimates what the network takes, from the answers that came."""

from collections import deque

from takt.units import Nanos

__all__ = ["NetworkTime"]

_WINDOW = 8


class NetworkTime:
    """The second longest of the last few times, so that one outlier does no harm.

    A deadline that forgets a slow network is missed and one that reckons with it is not, hence
    not the median.
    """

    def __init__(self) -> None:
        self._latest: deque[Nanos] = deque(maxlen=_WINDOW)

    @property
    def estimate(self) -> Nanos:
        """Time both ways; 0 before the first answer."""
        ordered = sorted(self._latest)
        return ordered[-2:][0] if ordered else 0

    def add(self, both_ways: Nanos) -> None:
        """Take in the network time of an answer."""
        self._latest.append(both_ways)
