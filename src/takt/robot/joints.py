"""Actions as vectors, and limits given once for all joints or one by one."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from takt.errors import ConfigError

__all__ = ["JointLimit", "Vector", "check_components", "check_limit", "widened"]

Vector: TypeAlias = NDArray[Any]
"""One action or pose, shape ``(action_dim,)``, in the units of the policy."""

JointLimit: TypeAlias = float | tuple[float, ...]
"""One number for all joints, or one per component of an action."""


def check_limit(name: str, limit: JointLimit | None) -> None:
    """Refuse a limit that limits nothing or everything.

    Raises:
        ConfigError: A number of ``limit`` is not positive and finite, or there is none.
    """
    if limit is None:
        return
    numbers = limit if isinstance(limit, tuple) else (limit,)
    if not numbers or not all(0 < number < math.inf for number in numbers):
        raise ConfigError(f"{name} must be positive and finite, got {limit}; None switches it off")


def check_components(name: str, components: Sequence[int]) -> None:
    """Refuse positions that are no positions within an action.

    Raises:
        ConfigError: One is negative, or given twice.
    """
    if any(index < 0 for index in components) or len(set(components)) != len(components):
        raise ConfigError(f"{name} must be distinct positions from 0 on, got {list(components)}")


def widened(name: str, limit: JointLimit | None, action_dim: int) -> NDArray[np.float64]:
    """The limit of every component, shape ``(action_dim,)``; infinite where there is none.

    Raises:
        ConfigError: ``limit`` has another number of components.
    """
    if isinstance(limit, tuple) and len(limit) != action_dim:
        raise ConfigError(f"{name} has {len(limit)} numbers for actions of {action_dim}")
    return np.full(action_dim, math.inf if limit is None else limit, dtype=np.float64)
