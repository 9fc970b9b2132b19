"""Fills the control ticks between two actions of a policy, and slows a robot down.

A policy trained at 30 actions per second may drive a robot that wants 120 commands per second.
Between two actions the robot moves in a straight line; nothing is ever extrapolated. Every action
is sent itself, unchanged, before the next one begins.

Start reading at :meth:`ActionInterpolator.next`.
"""

import numpy as np

from takt.errors import ConfigError, UsageError
from takt.robot.joints import Vector, check_components

__all__ = ["ActionInterpolator"]

_UNITS = 1000
"""Parts of a control tick that a speed is rounded to; whole numbers add up without drift."""


class ActionInterpolator:
    """Turns actions into ``multiplier`` commands each.

    With ``n`` commands per action, the ``i``-th after action ``a`` on the way to ``b`` is
    ``a + i / n * (b - a)``, and the last is ``b`` itself. The first action of all is sent at once,
    and so is the first after a :meth:`reset` that does not say where the robot is.

    Args:
        multiplier: Commands per action; 1 sends the actions and nothing else.
        stepped: Components that are not interpolated, such as a gripper: they keep ``a``'s value
            until ``b`` is sent.

    Raises:
        ConfigError: ``multiplier`` is below 1, or ``stepped`` no positions.
    """

    __slots__ = ("_before", "_multiplier", "_progress", "_stepped", "_target")

    def __init__(self, multiplier: int = 1, *, stepped: tuple[int, ...] = ()) -> None:
        if multiplier < 1:
            raise ConfigError(f"multiplier must be at least 1, got {multiplier}")
        check_components("stepped", stepped)
        self._multiplier = multiplier
        self._stepped = list(stepped)
        self._before: Vector | None = None
        self._target: Vector | None = None
        self._progress = 0

    @property
    def needs_action(self) -> bool:
        """The last action was sent: :meth:`add` the next one before :meth:`next`."""
        return self._target is None

    def add(self, action: Vector) -> None:
        """Set out for the next action. It is kept, not copied.

        Raises:
            UsageError: The one before was not sent yet, or has another shape.
        """
        if self._target is not None:
            raise UsageError("an action was added before the last one was sent; see needs_action")
        if self._before is not None and action.shape != self._before.shape:
            raise UsageError(f"an action of shape {action.shape} follows {self._before.shape}")
        self._target = action
        self._progress = 0

    def next(self, speed: float = 1.0) -> Vector:
        """The command of this control tick.

        Args:
            speed: Share of the full speed, 0..1. An action then takes ``multiplier / speed``
                ticks, rounded up; at 0 the robot stands still.

        Returns:
            Shape ``(action_dim,)``; an action itself is returned as it was given.

        Raises:
            UsageError: There is no action to set out for, or ``speed`` is outside 0..1.
        """
        if not 0 <= speed <= 1:
            raise UsageError(f"speed must lie in [0, 1], got {speed}")
        target = self._target
        if target is None:
            raise UsageError("there is no action to send; see needs_action")
        self._progress += round(speed * _UNITS)
        if self._before is None or self._progress >= self._multiplier * _UNITS:
            self._before, self._target = target, None
            return target
        return self._between(self._before, target)

    def reset(self, here: Vector | None = None) -> None:
        """Forget both actions.

        Args:
            here: The command that holds the robot: it sets out for the next action from there.
                None: not known, and the next action is sent at once.
        """
        self._before, self._target = here, None

    def _between(self, before: Vector, target: Vector) -> Vector:
        share = self._progress / (self._multiplier * _UNITS)
        command = before + share * (target - before)
        if self._stepped:
            command[self._stepped] = before[self._stepped]
        return np.asarray(command)
