"""One deadline on the monotonic clock, as a descriptor a selector can watch.

A selector's own timeout counts in whole milliseconds. A timer of the kernel is armed with the
instant itself, to the nanosecond, so that a wait does not grow with the time it took to arrange it.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import ClassVar

from takt.errors import ConfigError
from takt.units import SECOND, Nanos

__all__ = ["DeadlineTimer"]

_AT_INSTANT = 1
"""``TFD_TIMER_ABSTIME`` of ``sys/timerfd.h``."""
_libc = ctypes.CDLL(None, use_errno=True)


class _Setting(ctypes.Structure):
    """``struct itimerspec``: how often to repeat, and when."""

    _fields_: ClassVar = [
        (name, ctypes.c_long) for name in ("repeat_s", "repeat_ns", "at_s", "at_ns")
    ]


class DeadlineTimer:
    """Readable from its deadline on; only Linux has it.

    Raises:
        ConfigError: The process has no descriptor left.
    """

    def __init__(self) -> None:
        # TFD_NONBLOCK and TFD_CLOEXEC have the values of O_NONBLOCK and O_CLOEXEC.
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self._fd = _libc.timerfd_create(time.CLOCK_MONOTONIC, flags)
        if self._fd < 0:
            raise ConfigError(f"no timer for a paced device: {os.strerror(ctypes.get_errno())}")

    def fileno(self) -> int:
        """Descriptor to register with a selector."""
        return self._fd

    def set(self, instant: Nanos | None) -> None:
        """Fire at ``instant`` instead of whenever it was; None: not at all.

        An instant that has passed fires at once. A timer that has fired is no longer readable.
        """
        seconds, nanos = (0, 0) if instant is None else divmod(max(instant, 1), SECOND)
        setting = _Setting(0, 0, seconds, nanos)
        _libc.timerfd_settime(self._fd, _AT_INSTANT, ctypes.byref(setting), None)

    def close(self) -> None:
        """Give back the descriptor."""
        os.close(self._fd)
