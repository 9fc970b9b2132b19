"""What is sent to a robot that has no action to execute.

A robot driven by positions gets the last commanded pose again; the measured one would let it sag
a little at every hold. A robot driven by velocities is slowed to zero, because the last velocity
sent again drives on for ever.

Start reading at :meth:`HoldMotion.slow_down`.
"""

from typing import Literal, TypeAlias

import numpy as np

from takt.robot.joints import JointLimit, Vector, widened
from takt.units import Nanos, seconds, to_seconds

__all__ = ["HoldMode", "HoldMotion"]

HoldMode: TypeAlias = Literal["position", "velocity"]
"""How a robot holds: the last commanded pose again; or the last velocity, ramped to zero."""


class HoldMotion:
    """The command that follows the last executed action when there is none.

    Args:
        mode: What actions command.
        deceleration: In velocity mode, how fast a velocity is ramped to zero, per second.
        kept: Components that keep their last command, such as a gripper that holds a part.
    """

    def __init__(
        self, mode: HoldMode, *, deceleration: JointLimit | None, kept: tuple[int, ...]
    ) -> None:
        self._mode = mode
        self._deceleration = deceleration
        self._kept = list(kept)
        self._command: Vector | None = None
        self._is_zero_sent = False
        self._is_forgotten = False

    @property
    def command(self) -> Vector | None:
        """What to send; None before the first action."""
        return self._command

    @property
    def is_settled(self) -> bool:
        """The command does not change any more."""
        return self._mode == "position" or self._command is None or not self._ramped().any()

    @property
    def is_done(self) -> bool:
        """Nothing needs to be sent any more: a pose is kept, and a zero velocity was sent."""
        return self._mode == "position" or self._command is None or self._is_zero_sent

    @property
    def time_to_rest(self) -> Nanos:
        """How long the ramp to zero takes from the present command on."""
        if self._mode == "position" or self._command is None:
            return 0
        took = np.abs(self._command) / widened(
            "deceleration", self._deceleration, len(self._command)
        )
        return seconds(float(np.delete(took, self._kept).max(initial=0.0)))

    def executed(self, action: Vector) -> None:
        """An action was sent; the hold will follow it."""
        self._command = action
        self._is_zero_sent = self._is_forgotten = False

    def slow_down(self, elapsed: Nanos) -> None:
        """Time passed without an action."""
        if self._mode == "position" or self._command is None:
            return
        self._is_zero_sent = self.is_settled
        if self._is_zero_sent and self._is_forgotten:
            self.forget()
            return
        lost = widened("deceleration", self._deceleration, self._command.size)
        lost *= to_seconds(elapsed)
        slower = np.sign(self._command) * np.maximum(0.0, np.abs(self._command) - lost)
        slower[self._kept] = self._command[self._kept]
        self._command = slower.astype(np.result_type(self._command, np.float32))

    def forget(self) -> None:
        """The robot may have been moved by hand: nothing is known of it, once it stands still."""
        self._is_forgotten = not self.is_done
        if self._is_forgotten:  # a velocity that nobody ramps goes on for ever
            return
        self._command = None
        self._is_zero_sent = False

    def _ramped(self) -> Vector:
        """The command without the components that are kept."""
        return np.delete(np.asarray(self._command), self._kept)
