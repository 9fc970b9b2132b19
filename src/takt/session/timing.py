"""When an answer is due and when it expires.

``due`` orders the queues and is never clamped. It comes from the robot if the robot says when its
queue runs dry, else from the door if the door can tell, else from the model's slo. ``expires``
comes from the robot's maximum action age, else from due and slo.

Instants here are the server's: the network's part of a promise (the *network allowance*, both
ways) is taken off. Start reading at :func:`resolve_timing`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from takt.errors import ConfigError, ObservationError
from takt.units import Nanos, to_ms

__all__ = ["Declared", "DueSource", "NetworkAllowance", "Timing", "resolve_timing"]


class DueSource(Enum):
    """Where the due of a request comes from."""

    ROBOT = "robot"
    INFERRED = "inferred"
    SLO = "slo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a request says about its own time; everything may be missing."""

    due_in: Nanos | None = None
    """From arrival until the robot's queue runs dry, less the network both ways. Negative when
    the queue is dry already."""
    max_action_age: Nanos | None = None
    """Age at which the robot no longer executes an action, from taking the observation."""


class Timing(NamedTuple):
    """Instants of one request on the server's clock."""

    arrival: Nanos
    """Last byte read, before decoding."""
    due: Nanos
    """The robot's queue runs dry; may lie in the past."""
    promise: Nanos
    """Arrival plus slo less the network allowance: what the slo leaves the server."""
    expires: Nanos
    """An answer is worthless from here on."""
    due_source: DueSource
    """Which rule gave ``due``."""


def resolve_timing(
    arrival: Nanos,
    *,
    declared: Declared,
    slo: Nanos,
    allowance: Nanos,
    inferred_due: Nanos | None = None,
) -> Timing:
    """Apply the order robot, door, slo.

    Without a maximum action age a request expires one slo after its due. A due in the past counts
    from the arrival there: a robot that has starved for longer than one slo is served first, not
    refused for ever.

    Args:
        arrival: When the request's last byte was read.
        declared: What the robot said.
        slo: The model's promised time on the robot's clock.
        allowance: What the session's network takes, both ways.
        inferred_due: The door's estimate of the instant at which the queue runs dry.
    """
    promise = arrival + slo - allowance
    if declared.due_in is not None:
        due, source = arrival + declared.due_in, DueSource.ROBOT
    elif inferred_due is not None:
        due, source = inferred_due, DueSource.INFERRED
    else:
        due, source = promise, DueSource.SLO
    if declared.max_action_age is not None:
        expires = arrival + declared.max_action_age - allowance
    else:
        expires = max(due, arrival) + slo
    return Timing(arrival, due, promise, expires, source)


@dataclass(slots=True, kw_only=True)
class NetworkAllowance:
    """What one session's network takes, both ways.

    A stock client cannot measure it and keeps the constant; Takt's own client reports what it
    measured with each request, and the newest report holds.
    """

    constant: Nanos
    """From the fleet file; holds until the client reports."""
    most: Nanos
    """Largest report believed. A larger one would move the due far into the past and the robot to
    the head of every queue."""
    measured: Nanos | None = None
    """Newest report of the client."""

    def __post_init__(self) -> None:
        if not 0 <= self.constant <= self.most:
            raise ConfigError(
                f"network allowance: expected 0 to {to_ms(self.most):g} ms, "
                f"got {to_ms(self.constant):g} ms"
            )

    @property
    def value(self) -> Nanos:
        """The allowance in force."""
        return self.constant if self.measured is None else self.measured

    def report(self, measured: Nanos) -> None:
        """The client measured its network.

        Raises:
            ObservationError: The report lies outside the range believed; the old value holds.
        """
        if not 0 <= measured <= self.most:
            raise ObservationError(
                "network_ms",
                expected=f"0 to {to_ms(self.most):g} ms",
                received=f"{to_ms(measured):g} ms",
            )
        self.measured = measured
