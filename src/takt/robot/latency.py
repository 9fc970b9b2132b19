"""Estimates how long something takes from how long it took lately.

Only durations go in, each taken on one clock, so the clocks of robot and server need not agree.
The estimate errs on the long side, because a deadline that forgets a slow moment is missed, but
one freak value never decides it and everything leaves the window in time: a running maximum
would remember the first, cold inference for ever.

Start reading at :meth:`LatencyEstimate.add`.
"""

import math
from collections import deque

from takt.errors import ConfigError, UsageError
from takt.units import Nanos, to_ms

__all__ = ["LatencyEstimate"]


class LatencyEstimate:
    """A high quantile of the last few durations, never the single longest of several.

    Args:
        window: Durations that count.
        quantile: Share of them that the estimate covers, 0.5..1. The longest one is left out
            once there are two, so 1 means the second longest.
        cold_starts: Durations ignored at first and after each :meth:`restart`: the first
            inference compiles and allocates, and says nothing about the next.

    Raises:
        ConfigError: ``window`` is below 1, ``quantile`` outside 0.5..1, or ``cold_starts``
            negative.
    """

    __slots__ = ("_cold_left", "_cold_starts", "_latest", "_quantile")

    def __init__(self, *, window: int = 32, quantile: float = 0.95, cold_starts: int = 1) -> None:
        if window < 1:
            raise ConfigError(f"window must be at least 1, got {window}")
        if not 0.5 <= quantile <= 1:  # noqa: PLR2004 - the range is the documentation
            raise ConfigError(f"quantile must lie in [0.5, 1], got {quantile}")
        if cold_starts < 0:
            raise ConfigError(f"cold_starts must be at least 0, got {cold_starts}")
        self._latest: deque[Nanos] = deque(maxlen=window)
        self._quantile = quantile
        self._cold_starts = self._cold_left = cold_starts

    @classmethod
    def of_network(cls) -> "LatencyEstimate":
        """For what the network takes both ways: the second longest of the last eight times.

        The first answer counts at once, because networks have no cold start.
        """
        return cls(window=8, quantile=1, cold_starts=0)

    def add(self, took: Nanos) -> None:
        """Take in a duration.

        Raises:
            UsageError: It is negative: its ends come from two clocks.
        """
        if took < 0:
            raise UsageError(f"a duration must be at least 0, got {took} ns")
        if self._cold_left:
            self._cold_left -= 1
        else:
            self._latest.append(took)

    def restart(self) -> None:
        """The other side is new: the next durations are cold. Those known stay."""
        self._cold_left = self._cold_starts

    @property
    def samples(self) -> int:
        """Durations that count now."""
        return len(self._latest)

    @property
    def estimate(self) -> Nanos | None:
        """How long it takes; None while nothing is known."""
        ordered = sorted(self._latest)
        if not ordered:
            return None
        rank = math.ceil(self._quantile * len(ordered)) - 1
        return ordered[max(0, min(rank, len(ordered) - 2))]

    @property
    def estimate_ms(self) -> float | None:
        """How long it takes, in milliseconds; None while nothing is known."""
        estimate = self.estimate
        return None if estimate is None else to_ms(estimate)

    def steps(self, control_period: Nanos) -> int | None:
        """Control steps begun while it lasts: the estimate over the period, rounded up.

        Raises:
            ConfigError: ``control_period`` is not positive.
        """
        if control_period <= 0:
            raise ConfigError(f"control_period must be positive, got {control_period} ns")
        estimate = self.estimate
        return None if estimate is None else -(-estimate // control_period)
