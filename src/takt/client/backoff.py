"""How long to wait before trying again, so that a fleet does not come back all at once."""

from collections.abc import Callable
from random import Random

from takt.errors import ConfigError
from takt.units import MILLISECOND, SECOND, Nanos

__all__ = ["Backoff"]

_MAX_DOUBLINGS = 32


class Backoff:
    """Waits that double with every failure in a row, up to a cap, each drawn at random.

    A wait lies between half of its full length and all of it: robots that lost the same server
    spread out, and none of them knocks without pause.

    Args:
        base: Full length of the first wait.
        most: Full length of the longest.
        random: Draws from 0 up to 1; by default a source of this object's own.

    Raises:
        ConfigError: ``base`` is not positive, or ``most`` is below it.
    """

    def __init__(
        self,
        *,
        base: Nanos = 50 * MILLISECOND,
        most: Nanos = 5 * SECOND,
        random: Callable[[], float] | None = None,
    ) -> None:
        if not 0 < base <= most:
            raise ConfigError(f"expected 0 < base <= most, got {base} and {most} ns")
        self._base = base
        self._most = most
        self._random = random or Random().random
        self._failures = 0

    @property
    def failures(self) -> int:
        """Failures in a row."""
        return self._failures

    def after_failure(self) -> Nanos:
        """Count a failure; returns how long to wait before the next try."""
        full = min(self._base << min(self._failures, _MAX_DOUBLINGS), self._most)
        self._failures += 1
        return full - round(self._random() * (full // 2))

    def succeeded(self) -> None:
        """Begin anew."""
        self._failures = 0
