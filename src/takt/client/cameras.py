"""Reads cameras at their own, slower rate, beside the control loop.

A camera read may take longer than a control tick, so it has a thread of its own and the loop takes
the newest images that there are. How old these are counts: an observation is as old as its oldest
part, and a camera that froze ends in a hold instead of a robot that moves by an old picture.

Start reading at :class:`Cameras`.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from takt.client.pacing import Pacer, Wait, period_of, sleep
from takt.errors import UsageError
from takt.units import Nanos

__all__ = ["Cameras", "Images", "checked_mapping"]

log = logging.getLogger(__name__)

_JOIN_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Images:
    """What the cameras saw."""

    values: Mapping[str, object]
    """By the keys the policy takes."""
    taken: Nanos
    """Instant before the first of them was read."""


class Cameras:
    """Keeps the newest images.

    Args:
        read: Reads all cameras and returns fresh arrays; may wait for the next frame. It runs in
            a thread of its own; what it raises is counted, and the images grow old.
        rate_hz: How often.
        clock: Monotonic, in nanoseconds.
        wait: Lets time pass.

    Raises:
        ConfigError: ``rate_hz`` is not positive.
    """

    def __init__(
        self,
        read: Callable[[], Mapping[str, object]],
        *,
        rate_hz: float,
        clock: Callable[[], Nanos] = time.monotonic_ns,
        wait: Wait = sleep,
    ) -> None:
        self.period = period_of(rate_hz, "image rate_hz")
        """Time between two reads."""
        self._read = read
        self._clock = clock
        self._pacer = Pacer(self.period, clock=clock, wait=wait)
        self._newest: Images | None = None
        self._failures = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="takt-cameras", daemon=True)

    @property
    def newest(self) -> Images | None:
        """The newest images; None before the first."""
        return self._newest

    @property
    def failures(self) -> int:
        """Reads that raised."""
        return self._failures

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def read_once(self) -> None:
        """Read now. The thread calls this; so does a test."""
        taken = self._clock()
        try:
            values = checked_mapping(self._read(), "a camera read")
        except Exception:
            if not self._failures:
                log.exception("reading the cameras failed; further failures are only counted")
            self._failures += 1
        else:
            self._newest = Images(values=values, taken=taken)

    def close(self) -> None:
        """Stop reading. A read under way is not waited for longer than a moment."""
        self._closing = True
        if self._thread.is_alive():
            self._thread.join(_JOIN_TIMEOUT_S)

    def _run(self) -> None:
        while not self._closing:
            self._pacer.next_tick()
            self.read_once()


def checked_mapping(values: object, source: str) -> Mapping[str, object]:
    """What a user's function read, once it is known to be named values.

    Raises:
        UsageError: It is something else, such as the None of a driver that has nothing to say.
    """
    if not isinstance(values, Mapping):
        raise UsageError(f"{source} must return values by key, got {type(values).__name__}")
    return cast("Mapping[str, object]", values)
