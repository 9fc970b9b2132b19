"""Blends written for torch tensors, such as LeRobot's ``aggregate_fn``, on NumPy actions.

LeRobot's users have functions of two tensors. Many are plain arithmetic and work on NumPy arrays as
they are; those that call torch are wrapped here. Torch is imported when a function is wrapped, and
never by ``import takt.client``.
"""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from takt.errors import ConfigError, UsageError
from takt.robot.blending import Blend
from takt.robot.joints import Vector

__all__ = ["from_torch"]


def from_torch(function: Callable[[Any, Any], Any]) -> Blend:
    """A blend for ``LoopSettings(merge=...)`` from a function of two tensors.

    Args:
        function: Gets the queued and the arrived action of a timestep, each a ``float32`` tensor
            on the CPU, shape ``(action_dim,)``, its own to change; returns the action to execute.

    Returns:
        The same on NumPy arrays. It raises :class:`~takt.errors.UsageError` when the function
        returns no tensor; :func:`~takt.robot.blending.merge_rule` refuses another shape, NaN and
        infinity, as of any blend. The chunk is then not executed.

    Raises:
        ConfigError: torch is not installed.
    """
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise ConfigError(f"a function of torch tensors needs torch ({error})") from error

    def blend(queued: Vector, arrived: Vector) -> Vector:
        # Copies: actions are read-only, and a function may write to its tensors.
        mixed: Any = function(
            torch.tensor(np.array(queued, np.float32)), torch.tensor(np.array(arrived, np.float32))
        )
        if not isinstance(mixed, torch.Tensor):
            raise UsageError(f"the merge function must return a tensor, got {type(mixed).__name__}")
        return mixed.detach().to("cpu", torch.float32).numpy()

    return blend
