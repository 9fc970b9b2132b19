"""What happened to a scheduler, and when: the record from which everything else is computed.

Five events are calls a driver made (:data:`Call`); :class:`Moved` and :class:`Ended` are
consequences. Metrics, logs and answers are folds over the same events, and a trace of them replays
(:mod:`takt.core.trace`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from takt.core.launch import Lane, Launch
from takt.core.request import Phase
from takt.units import Nanos

__all__ = ["Call", "Cancel", "Decide", "Ended", "Event", "Finish", "Moved", "Submit", "Switched"]


class Submit(NamedTuple):
    """A request arrived."""

    at: Nanos
    seq: int
    model: str
    session: str
    arrival: Nanos
    due: Nanos
    promise: Nanos
    expires: Nanos
    layout: int
    supersede: bool
    priority: int = 0


class Cancel(NamedTuple):
    """A client no longer wants its answer."""

    at: Nanos
    seq: int


class Finish(NamedTuple):
    """A launch ended."""

    at: Nanos
    lane: Lane
    failed: tuple[int, ...]
    """Requests whose rows could not be computed."""


class Decide(NamedTuple):
    """A driver asked what to run, and was told."""

    at: Nanos
    launches: tuple[Launch, ...]
    wake_at: Nanos | None


class Switched(NamedTuple):
    """Nothing was under way, and the device is driven in another way from here on."""

    at: Nanos
    setup: Mapping[str, Any]
    """The new way, as :meth:`takt.core.trace.Setup.to_json` writes it."""


class Moved(NamedTuple):
    """A request's key/value cache began to move to the device that will denoise it."""

    at: Nanos
    seq: int
    source: int
    home: int
    until: Nanos
    """Instant at which it will be there."""


class Ended(NamedTuple):
    """A request got its outcome."""

    at: Nanos
    seq: int
    phase: Phase


Call: TypeAlias = Submit | Cancel | Finish | Decide | Switched
Event: TypeAlias = Call | Moved | Ended
