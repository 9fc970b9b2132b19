"""Ticks at absolute instants, so that a slow tick does not delay the ones behind it.

The instants are ``origin + number * period`` on a monotonic clock. A tick that ends late is
followed at once by the next one; instants that have passed by a whole period are skipped and
counted, never made up for in a burst: a robot that was held up must not move faster afterwards.

Start reading at :meth:`Pacer.next_tick`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from takt.errors import ConfigError
from takt.units import SECOND, Nanos, to_seconds

__all__ = ["Pacer", "Tick", "Wait", "period_of", "sleep"]

Wait = Callable[[Nanos], None]
"""Lets a duration pass, at least; returns early only where it cannot do otherwise."""

_MAX_HZ = 10_000.0


def sleep(duration: Nanos) -> None:
    """Let ``duration`` pass on the monotonic clock."""
    # An event with a timeout would be woken by `close`, but until Python 3.11 such a timeout
    # follows the wall clock: a step back by 5 s would stop the robot's loop for 5 s. A period is
    # short enough to wait out.
    time.sleep(to_seconds(duration))  # noqa: TID251 - an instant is waited for, and no event


def period_of(rate_hz: float, name: str) -> Nanos:
    """The period of a rate.

    Raises:
        ConfigError: The rate, called ``name``, is not positive or too high to be kept.
    """
    if not 0 < rate_hz <= _MAX_HZ:
        raise ConfigError(f"{name} must be above 0 and at most {_MAX_HZ:g}, got {rate_hz}")
    return round(SECOND / rate_hz)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One tick that begins now."""

    number: int
    """Of the instant it stands for, from 0; larger by more than one after skipped instants."""
    scheduled: Nanos
    """The instant it stands for."""
    started: Nanos
    """When it really began."""
    skipped: int
    """Instants before it that passed without a tick of their own."""

    @property
    def late(self) -> Nanos:
        """How long after its instant it began."""
        return self.started - self.scheduled


class Pacer:
    """Gives the ticks of one loop. For one thread.

    Args:
        period: Time between two ticks.
        clock: Monotonic, in nanoseconds.
        wait: Lets time pass.
    """

    def __init__(
        self,
        period: Nanos,
        *,
        clock: Callable[[], Nanos] = time.monotonic_ns,
        wait: Wait = sleep,
    ) -> None:
        if period <= 0:
            raise ConfigError(f"period must be positive, got {period} ns")
        self.period = period
        """Time between two ticks."""
        self._clock = clock
        self._wait = wait
        self._origin: Nanos | None = None
        self._next = 0
        self._overruns = self._skipped = 0

    @property
    def overruns(self) -> int:
        """Ticks that were not over when the next one's instant came."""
        return self._overruns

    @property
    def skipped(self) -> int:
        """Instants that passed without a tick of their own."""
        return self._skipped

    def next_tick(self) -> Tick:
        """Wait for the next instant. The first call sets the origin and does not wait."""
        now = self._clock()
        if self._origin is None:
            self._origin = now
        scheduled = self._origin + self._next * self.period
        if self._next and now > scheduled:
            self._overruns += 1
        skipped = max(0, (now - scheduled) // self.period)
        number = self._next + skipped
        scheduled += skipped * self.period
        while now < scheduled:
            self._wait(scheduled - now)
            now = self._clock()
        self._skipped += skipped
        self._next = number + 1
        return Tick(number=number, scheduled=scheduled, started=now, skipped=skipped)
