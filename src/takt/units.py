"""Time as whole nanoseconds, the only unit of time below the edges of the program.

Integers add up without rounding, so two machines that see the same events take the same
decisions. Milliseconds appear in files, on the command line and on screens; they are converted
here.
"""

from typing import TypeAlias

__all__ = ["MICROSECOND", "MILLISECOND", "SECOND", "Nanos", "ms", "seconds", "to_ms", "to_seconds"]

Nanos: TypeAlias = int
"""An instant on a clock of the driver's choice, or a duration, in nanoseconds."""

MICROSECOND: Nanos = 1_000
MILLISECOND: Nanos = 1_000_000
SECOND: Nanos = 1_000_000_000


def ms(value: float) -> Nanos:
    """Nanoseconds in ``value`` milliseconds, rounded to the nearest."""
    return round(value * MILLISECOND)


def seconds(value: float) -> Nanos:
    """Nanoseconds in ``value`` seconds, rounded to the nearest."""
    return round(value * SECOND)


def to_ms(value: Nanos) -> float:
    """Milliseconds in ``value`` nanoseconds."""
    return value / MILLISECOND


def to_seconds(value: Nanos) -> float:
    """Seconds in ``value`` nanoseconds."""
    return value / SECOND
