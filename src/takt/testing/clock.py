"""A clock that moves only when told to."""

from __future__ import annotations

from takt.errors import UsageError
from takt.units import Nanos

__all__ = ["ManualClock"]


class ManualClock:
    """Stands in for a monotonic clock; hand :meth:`now` to whatever reads one.

    Args:
        start: Instant the clock shows at first.
    """

    def __init__(self, start: Nanos = 0) -> None:
        self._now = start

    def now(self) -> Nanos:
        """The instant the clock shows."""
        return self._now

    def advance(self, duration: Nanos) -> Nanos:
        """Let ``duration`` pass.

        Returns:
            The instant the clock shows now.

        Raises:
            UsageError: ``duration`` is negative; a monotonic clock never goes back.
        """
        if duration < 0:
            raise UsageError(f"duration must not be negative, got {duration} ns")
        self._now += duration
        return self._now
