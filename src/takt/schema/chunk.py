"""The answer to one observation: the actions of the next few control steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from takt.errors import UsageError

__all__ = ["AXES", "ActionChunk"]

AXES = ("horizon", "action_dim")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActionChunk:
    """Future actions of one robot, in robot space."""

    actions: NDArray[np.float32]
    """Shape ``(horizon, action_dim)``; names, order and units are the policy's
    :class:`~takt.schema.spec.ActionSpec`."""
    first_timestep: int = 0
    """Control step that ``actions[0]`` is meant for, counted as the robot counts; consecutive rows
    are for consecutive steps."""
    execution_horizon: int | None = None
    """Steps to execute before the next chunk should replace this one; None: all of them."""

    def __post_init__(self) -> None:
        if len(self.actions.shape) != len(AXES) or self.actions.dtype != np.float32:
            raise UsageError(
                "actions must be float32 of shape (horizon, action_dim), got"
                f" {self.actions.dtype} of shape {self.actions.shape}"
            )
        if self.execution_horizon is not None and not 1 <= self.execution_horizon <= self.horizon:
            raise UsageError(
                f"execution_horizon must lie in 1..{self.horizon}, got {self.execution_horizon}"
            )

    @property
    def horizon(self) -> int:
        """Steps in the chunk."""
        return int(self.actions.shape[0])

    @property
    def action_dim(self) -> int:
        """Values of one action."""
        return int(self.actions.shape[1])
