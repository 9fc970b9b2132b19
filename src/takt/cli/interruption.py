"""Ctrl-C, SIGTERM and SIGHUP while something is under way that must be brought to an end in order.

A service manager ends programs by SIGTERM, and a terminal that is closed by SIGHUP. Unheard, either
would end a command between two control ticks, with the last velocity in force, or throw away what
it has measured.

The first signal does what the command asked for, such as stopping its control loop; where it asked
for nothing, it raises ``KeyboardInterrupt`` as Ctrl-C always does. What follows may then take its
time: only a person's further Ctrl-C interrupts that, too. One that follows at once is no further
one: programs that start others pass on what the terminal has told those already. The signal's
number is the exception's argument, from which :func:`takt.cli.main.main` makes the exit status.

Signals that were ignored before, as ``nohup`` does, stay ignored.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from takt.units import SECOND, Nanos

__all__ = ["Interruption"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STANDARD_STREAMS = (0, 1, 2)
_AT_ONCE: Nanos = SECOND


class Interruption:
    """A context in which signals are heard. For the main thread.

    Args:
        clock: Monotonic, in nanoseconds.
    """

    def __init__(self, clock: Callable[[], Nanos] = time.monotonic_ns) -> None:
        self.number: int | None = None
        """The first signal that came; None: none did."""
        self.at_first: Callable[[], None] | None = None
        """What the first signal does instead of raising. It is called between any two instructions
        of the main thread, so it may take no lock."""
        self._clock = clock
        self._first_came: Nanos = 0
        self._before: dict[int, Any] = {}
        self._terminals: list[int] = []

    def __enter__(self) -> Interruption:
        self._terminals = [number for number in _STANDARD_STREAMS if os.isatty(number)]
        for number in _SIGNALS:
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                self._before[number] = before or signal.SIG_DFL
                signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    @contextmanager
    def heard(self) -> Generator[None, None, None]:
        """A context that a signal ends, and that goes on behind it."""
        try:
            yield
        except KeyboardInterrupt:
            if self.number is None:
                raise

    def let_finish(self) -> None:
        """Let the first signal do nothing: what is left takes little time, and is to be told."""
        self.at_first = lambda: None

    def raise_if_any(self) -> None:
        """End the command as the signal wanted, once everything is in order.

        Raises:
            KeyboardInterrupt: A signal came.
        """
        if self.number is not None:
            raise KeyboardInterrupt(self.number)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._let_go_of_a_closed_terminal()
        is_first = self.number is None
        if is_first:
            self.number, self._first_came = number, self._clock()
        if is_first and self.at_first is not None:
            self.at_first()
        elif is_first or self._is_further(number):
            raise KeyboardInterrupt(self.number)

    def _is_further(self, number: int) -> bool:
        return number == signal.SIGINT and self._clock() - self._first_came > _AT_ONCE

    def _let_go_of_a_closed_terminal(self) -> None:
        """Whatever is still printed to one would raise."""
        gone = [number for number in self._terminals if not os.isatty(number)]
        if not gone:
            return
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in gone:
            os.dup2(nowhere, number)
        os.close(nowhere)
        self._terminals = [number for number in self._terminals if number not in gone]
