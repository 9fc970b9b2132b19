"""How long a gateway waits for a worker that owes it something.

A worker owes for every request: an answer, or the word that it no longer reads the slot. It counts
as hung in two cases:

- it owes and says nothing at all: the process is stopped, or its loop is;
- it has reported a request as running and does not come back with it: a lane is stuck, however
  much the rest of the worker talks.

Both are measured against ``max(hang, 5 x the longest launch of late)``. A robot is not made to wait
that long: :meth:`Patience.wait_until` says how long one request is waited for.

Nothing here reads a clock or sets a timer. Start reading at :meth:`Patience.left`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from takt.link.messages import SlotRef
from takt.units import MILLISECOND, SECOND, Nanos

__all__ = ["Patience"]

_UNKNOWN_LAUNCH: Nanos = 30 * SECOND
"""Patience with a worker whose launches have never been timed, or that is loading a model."""
_FACTOR = 5
_REMEMBERED = 64
"""A launch that was held up once shall not count for ever."""
_FIRST_WORD: Nanos = 10 * MILLISECOND
"""A worker that lives refuses what has expired itself, and knows better why."""
_SILENCE: Nanos = 100 * MILLISECOND
"""A worker that lives says within half of this which requests it has begun."""


class Patience:
    """What one link to a worker owes, and since when.

    Args:
        hang: Least time without progress that counts as hung.
    """

    def __init__(self, hang: Nanos) -> None:
        self.is_loading = False
        """Whether the worker is loading a model: its process may be busy for seconds."""
        self._hang = hang
        self._expires: dict[SlotRef, Nanos] = {}
        self._running: dict[SlotRef, Nanos] = {}
        """Since when each running request may be asked after; oldest first."""
        self._heard_at: Nanos = 0
        self._launches: deque[Nanos] = deque(maxlen=_REMEMBERED)

    @property
    def is_owed(self) -> bool:
        """Whether there is anything to wait for."""
        return bool(self._expires)

    @property
    def limit(self) -> Nanos:
        """Time without progress after which the worker counts as hung."""
        longest = self._longest
        known = _UNKNOWN_LAUNCH if longest is None else _FACTOR * longest
        return max(self._hang, known, _UNKNOWN_LAUNCH if self.is_loading else 0)

    def submitted(self, ref: SlotRef, expires: Nanos, now: Nanos) -> None:
        """A request went to the worker."""
        if not self._expires:
            self._heard_at = now
        self._expires[ref] = expires

    def heard(self, now: Nanos) -> None:
        """The worker said something."""
        self._heard_at = now

    def started(self, refs: Iterable[SlotRef], now: Nanos) -> None:
        """The worker put requests into launches."""
        for ref in refs:
            expires = self._expires.get(ref)
            if expires is not None:
                # Until it expires a request may wait between its launches.
                self._running[ref] = max(now, expires)

    def settled(self, ref: SlotRef) -> None:
        """The worker has answered, or no longer reads the slot."""
        self._expires.pop(ref, None)
        self._running.pop(ref, None)

    def timed(self, launch: Nanos) -> bool:
        """A launch took so long; whether it is the first that was timed."""
        self._launches.append(launch)
        return len(self._launches) == 1

    def forget(self) -> None:
        """The link has ended."""
        self._expires.clear()
        self._running.clear()

    def pardon(self, now: Nanos) -> None:
        """The gateway itself was held up, and cannot tell what the worker did meanwhile."""
        self._heard_at = now
        self._running = {ref: max(since, now) for ref, since in self._running.items()}

    def since(self) -> Nanos:
        """The instant from which the worker has made no progress."""
        return min((self._heard_at, *self._running.values()))

    def left(self, now: Nanos) -> Nanos | None:
        """Time until the worker counts as hung, not positive if it does; None: it owes nothing."""
        if not self._expires:
            return None
        return self.since() + self.limit - now

    def wait_until(self, ref: SlotRef) -> Nanos:
        """The instant at which a robot is no longer made to wait for a request.

        It is the one at which the request expires, unless the worker is expected to speak: one
        that talks refuses expired requests itself, and a launch that runs is worth its end.
        """
        expires = self._expires.get(ref)
        if expires is None:
            return 0  # not owed: nothing is to come
        if ref not in self._running:
            return max(expires + _FIRST_WORD, self._heard_at + _SILENCE)
        longest = self._longest
        return self._running[ref] + (self.limit if longest is None else 2 * longest)

    @property
    def _longest(self) -> Nanos | None:
        return max(self._launches, default=None)
