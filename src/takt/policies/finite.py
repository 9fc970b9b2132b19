"""Refuses a row whose numbers are not finite, so that no robot ever receives one."""

from __future__ import annotations

import numpy as np

from takt.errors import RefusedError
from takt.policies.interface import FloatArray

__all__ = ["check_finite"]


def check_finite(actions: FloatArray) -> None:
    """Refuse NaN and infinity.

    Raises:
        RefusedError: Code ``failed``, with the first value at fault.
    """
    finite = np.isfinite(actions)
    if finite.all():
        return
    step, axis = np.argwhere(~finite)[0]
    raise RefusedError(
        f"the policy's answer is not finite: action[{step}, {axis}] is {actions[step, axis]};"
        " send a new observation",
        code="failed",
    )
