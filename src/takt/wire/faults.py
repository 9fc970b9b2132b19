"""How an error says what a stranger sent: in a few printable characters, whatever it was."""

from __future__ import annotations

from typing import cast

from takt.errors import ObservationError
from takt.wire.limits import UnplacedError

__all__ = ["MAX_SHOWN", "refused", "shown"]

MAX_SHOWN = 60
"""Characters of a value that an error repeats."""


def refused(expected: str, received: str) -> UnplacedError:
    """An observation is at fault, at a place that whoever catches this knows.

    Args:
        expected: What would have been right.
        received: What came instead.
    """
    return UnplacedError(ObservationError, expected=expected, received=received)


def shown(value: object) -> str:
    """A value of a message, as part of an error."""
    if isinstance(value, (str, int, float)):
        text = ascii(value)
        return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
    if isinstance(value, memoryview):
        return f"{len(cast('memoryview[int]', value))} bytes"
    return "nothing" if value is None else type(value).__name__
