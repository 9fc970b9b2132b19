"""One request for an action chunk and the phases it goes through.

::

    QUEUED -> PREFIXING -> READY -> DENOISING -> SERVED
       |          |          |          |
       |          +----------+----------+------> CANCELLED   (the client has gone)
       |          +---------------------+------> FAILED      (its row could not be computed)
       +---------------------+-----------------> EXPIRED     (an answer would be worthless)
       +---------------------------------------> SUPERSEDED  (a newer observation of the session)

A policy with a single pass goes from PREFIXING straight to SERVED. A request whose prefix has
been computed is never superseded: its answer comes sooner than any newer one could.

Where the denoise stage runs on another device, a request is MOVING between PREFIXING and READY.
Where every denoise step is a launch of its own, a request goes from DENOISING back to READY after
each step but the last: between two steps it waits like any other, and can expire or be cancelled.

:data:`ALLOWED` is the whole truth about legal moves and :meth:`Request.move` the only mover.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from takt.errors import InvariantError
from takt.units import Nanos

__all__ = ["ALLOWED", "ENDED", "Phase", "Request", "Stage"]


class Stage(IntEnum):
    """The two halves of an inference, in the order a request meets them."""

    PREFIX = 0
    """The vision-language pass."""
    DENOISE = 1
    """The loop of denoise steps."""


class Phase(Enum):
    """Where a request is."""

    QUEUED = "queued"
    PREFIXING = "prefixing"
    MOVING = "moving"
    READY = "ready"
    DENOISING = "denoising"
    SERVED = "served"
    FAILED = "failed"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"

    # There is one object per phase, and Enum's own hash costs a call in Python at every look-up.
    __hash__ = object.__hash__


ALLOWED: Mapping[Phase, frozenset[Phase]] = {
    Phase.QUEUED: frozenset(
        {Phase.PREFIXING, Phase.EXPIRED, Phase.SUPERSEDED, Phase.CANCELLED},
    ),
    Phase.PREFIXING: frozenset(
        {Phase.MOVING, Phase.READY, Phase.SERVED, Phase.FAILED, Phase.CANCELLED},
    ),
    Phase.MOVING: frozenset({Phase.READY, Phase.CANCELLED}),
    Phase.READY: frozenset({Phase.DENOISING, Phase.EXPIRED, Phase.CANCELLED}),
    Phase.DENOISING: frozenset({Phase.READY, Phase.SERVED, Phase.FAILED, Phase.CANCELLED}),
    Phase.SERVED: frozenset(),
    Phase.FAILED: frozenset(),
    Phase.EXPIRED: frozenset(),
    Phase.SUPERSEDED: frozenset(),
    Phase.CANCELLED: frozenset(),
}
"""Legal moves between phases. A phase that leads nowhere is an end."""

ENDED: frozenset[Phase] = frozenset(phase for phase, moves in ALLOWED.items() if not moves)
"""Phases in which a request has its outcome."""


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """What the scheduler knows of one observation that asks for an action chunk."""

    seq: int
    """Number given by the driver; rises from request to request."""
    model: str
    """Name of the model that must answer."""
    session: str
    """Session the observation belongs to."""
    arrival: Nanos
    """Instant at which the last byte of the observation was read."""
    due: Nanos
    """Instant at which the answer must leave so that the robot's queue does not run dry. It may
    lie in the past: a robot whose queue is dry goes first."""
    promise: Nanos
    """Arrival plus the model's slo less the session's network allowance."""
    expires: Nanos
    """Instant from which an answer is worthless. Nothing is started for it from then on."""
    layout: int = 0
    """Which cameras and which prompt length its row has, see
    :attr:`~takt.core.model.Model.holds`."""
    supersede: bool = True
    """Whether this observation replaces one of its session that still waits for its prefix."""
    priority: int = 0
    """Class of its robot, 0 first. A request of class ``c`` is overtaken only by requests whose
    due lies at most ``c`` slos after its own."""
    phase: Phase = field(default=Phase.QUEUED, init=False)
    order: Nanos = field(init=False)
    """Its place in queues, earliest first: its due, later by one slo per class. The scheduler
    sets it."""
    home: int = field(default=0, init=False)
    """Device that holds its key/value cache, once its prefix has run."""
    steps_left: int = field(default=1, init=False)
    """Denoise launches still to run."""
    moves: int = field(default=0, init=False)
    """How often it has changed its phase. Tells what was arranged for an earlier stay in a phase
    from what counts."""
    latest: Nanos = field(init=False)
    """Last instant at which an answer is on time by one of the two measures."""

    def __post_init__(self) -> None:
        self.order = self.due
        self.latest = self.due if self.due > self.promise else self.promise

    def move(self, to: Phase) -> None:
        """Enter phase ``to``.

        Raises:
            InvariantError: :data:`ALLOWED` has no such move.
        """
        if to not in ALLOWED[self.phase]:
            raise InvariantError(f"request {self.seq}: {self.phase.name} -> {to.name} is no move")
        self.phase = to
        self.moves += 1
