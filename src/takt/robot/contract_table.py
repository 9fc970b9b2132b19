"""The states of a robot that is driven by a server, and every move between them.

    IDLE -> ACTIVE <-> DEGRADED -> HOLD -> STOPPED (latched)

:data:`TABLE` holds every move there is; nothing else decides legality.
:mod:`takt.robot.contract` says when a cause is given.
"""

from collections.abc import Mapping
from enum import Enum

__all__ = ["TABLE", "Cause", "State"]


class State(Enum):
    """How a robot is driven."""

    IDLE = "idle"
    """Not started, or started and no valid action came yet: nothing is sent, once a velocity
    that was reset before it was zero has been ramped down."""
    ACTIVE = "active"
    """Valid actions are executed."""
    DEGRADED = "degraded"
    """The answer is overdue: what is still valid is executed, then the robot waits for
    ``t_hold`` at most."""
    HOLD = "hold"
    """There was no valid action for ``t_hold``: the robot holds until the resume rule is met."""
    STOPPED = "stopped"
    """Latched: only a reset by a person leads out."""


class Cause(Enum):
    """Why a state was left."""

    START = "start"
    """Somebody started the robot, and there is a valid action near its pose."""
    OVERDUE = "overdue"
    """The queue is low and the answer late."""
    DRY = "dry"
    """There is no action."""
    STALE = "stale"
    """The next action is older than ``max_action_age``."""
    RECOVERED = "recovered"
    """There are valid actions, and no answer is overdue."""
    NO_ACTION = "no_action"
    """There was no valid action for ``t_hold``."""
    RELEASED = "released"
    """The enabling button is not held."""
    RESUME = "resume"
    """The resume rule is met."""
    TIMEOUT = "timeout"
    """The hold lasted for ``t_stop``."""
    REJECTED = "rejected"
    """The guard rejected too many chunks in a row."""
    CLOCK = "clock"
    """The clock went backwards."""
    STOP = "stop"
    """Somebody stopped the robot."""
    RESET = "reset"
    """Somebody released the latch."""


_FAULTS = (Cause.REJECTED, Cause.CLOCK, Cause.STOP)

TABLE: Mapping[tuple[State, Cause], State] = {
    (State.IDLE, Cause.START): State.ACTIVE,
    **{(State.IDLE, fault): State.STOPPED for fault in _FAULTS},
    (State.ACTIVE, Cause.OVERDUE): State.DEGRADED,
    (State.ACTIVE, Cause.DRY): State.DEGRADED,
    (State.ACTIVE, Cause.STALE): State.DEGRADED,
    (State.ACTIVE, Cause.NO_ACTION): State.HOLD,
    (State.ACTIVE, Cause.RELEASED): State.HOLD,
    **{(State.ACTIVE, fault): State.STOPPED for fault in _FAULTS},
    (State.DEGRADED, Cause.RECOVERED): State.ACTIVE,
    (State.DEGRADED, Cause.NO_ACTION): State.HOLD,
    (State.DEGRADED, Cause.RELEASED): State.HOLD,
    **{(State.DEGRADED, fault): State.STOPPED for fault in _FAULTS},
    (State.HOLD, Cause.RESUME): State.ACTIVE,
    (State.HOLD, Cause.TIMEOUT): State.STOPPED,
    **{(State.HOLD, fault): State.STOPPED for fault in _FAULTS},
    (State.STOPPED, Cause.RESET): State.IDLE,
}
"""Every move there is: from (state, cause) to state. A cause without a row leaves a state be."""
