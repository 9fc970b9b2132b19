"""Real-time chunking by guidance: how strongly a new chunk is drawn to the one being executed.

While a chunk is computed, the robot executes the first ``delay`` steps of what it has. The new
chunk must agree with those, should agree with the following ones, and is free after
``execution_horizon`` steps. Pure NumPy: gateways make the weights, networks use them.

Source: Black et al., "Real-Time Execution of Action Chunking Flow Policies" (arXiv:2506.07339).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from takt.errors import ObservationError
from takt.policies.interface import FloatArray
from takt.schema.row import Chunking

__all__ = [
    "Guided",
    "Leftover",
    "Schedule",
    "guidance_of",
    "guided_chunking",
    "prefix_weights",
    "step_times",
]

Schedule: TypeAlias = Literal["LINEAR", "EXP", "ZEROS", "ONES"]
"""How the weight falls between the delay and the execution horizon."""


class Leftover(NamedTuple):
    """The part of a chunk that its robot has not executed."""

    rows: NDArray[np.floating]
    """Model space, ``(steps, columns)``; row 0 is the step the new chunk starts at."""
    digest: str
    """Digest of the model that made it."""


class Guided(NamedTuple):
    """Chunking for a request, or why it has none."""

    chunking: Chunking | None
    reason: str = ""


def prefix_weights(
    delay: int, execution_horizon: int, horizon: int, schedule: Schedule = "LINEAR"
) -> FloatArray:
    """Weight of each step of a chunk.

    Args:
        delay: Steps that will have been executed when the answer arrives.
        execution_horizon: Steps after which the new chunk is free.
        horizon: Steps in a chunk.
        schedule: How the weight falls in between.

    Returns:
        ``(horizon,)``: 1 before ``delay``, 0 from ``execution_horizon`` on.

    Raises:
        ObservationError: The delay or the execution horizon is impossible.
    """
    _check_steps("execution_horizon", execution_horizon, 1, horizon)
    _check_steps("inference_delay", delay, 0, horizon - 1)
    if schedule not in get_args(Schedule):
        known = f"one of {', '.join(get_args(Schedule))}"
        raise ObservationError("schedule", expected=known, received=repr(schedule))
    start = min(delay, execution_horizon)
    fall = np.linspace(1.0, 0.0, execution_horizon - start + 2)[1:-1]
    if schedule == "EXP":
        fall = fall * np.expm1(fall) / np.expm1(1.0)
    elif schedule != "LINEAR":
        fall = np.full_like(fall, 1.0 if schedule == "ONES" else 0.0)
    weights = np.zeros(horizon, np.float32)
    weights[:start] = 1
    weights[start:execution_horizon] = fall
    return weights


def step_times(num_steps: int) -> FloatArray:
    """Time at the start of each step: 1, 1 - 1/n, ... 1/n. In double, handed over as float32."""
    return (1.0 - np.arange(num_steps) / num_steps).astype(np.float32)


def guidance_of(num_steps: int, max_guidance: float) -> FloatArray:
    """Guidance weight of each step: largest at both ends, never above ``max_guidance``."""
    weights = np.empty(num_steps, np.float32)
    for step in range(num_steps):
        tau = step / num_steps
        rest = 1.0 - tau
        weight = math.inf if tau == 0 else rest / tau * (rest**2 + tau**2) / rest**2
        weights[step] = min(weight, max_guidance)
    return weights


def guided_chunking(
    leftover: Leftover,
    *,
    digest: str,
    delay: int,
    execution_horizon: int,
    horizon: int,
    model_action_dim: int,
    schedule: Schedule = "LINEAR",
) -> Guided:
    """What a request asks of the network to continue ``leftover``.

    Args:
        leftover: What is left of the chunk being executed.
        digest: Digest of the model that will answer.
        delay: Steps that will have been executed when the answer arrives.
        execution_horizon: Steps after which the new chunk is free; at most the rows left count.
        horizon: Steps in a chunk of that model.
        model_action_dim: Padded length of its actions.
        schedule: How the weight falls.

    Returns:
        The chunking; none, with the reason, where the leftover is another model's: its numbers
        mean other actions.

    Raises:
        ObservationError: The delay is impossible, or the leftover does not fit.
    """
    if leftover.digest != digest:
        return Guided(None, f"the chunk being executed is of model {leftover.digest or 'unknown'}")
    rows = np.asarray(leftover.rows)
    expected = f"1..{horizon} rows of 1..{model_action_dim} finite values"
    if rows.shape[1:] == () or not len(rows) >= 1 or not 1 <= rows.shape[1] <= model_action_dim:
        received = f"shape {rows.shape}"
        raise ObservationError("previous_chunk", expected=expected, received=received)
    if rows.ndim != len(("steps", "columns")) or not np.isfinite(rows).all():
        raise ObservationError("previous_chunk", expected=expected, received="something else")
    rows = rows[:horizon]
    _check_steps("inference_delay", delay, 0, len(rows))
    reach = min(execution_horizon, len(rows))
    previous = np.zeros((horizon, model_action_dim), np.float32)
    previous[: len(rows), : rows.shape[1]] = rows
    delay = min(delay, horizon - 1)  # a chunk that comes too late altogether keeps a free step
    weights = prefix_weights(delay, reach, horizon, schedule)
    return Guided(
        Chunking(previous_chunk=previous, prefix_weights=weights, frozen_steps=min(delay, reach))
    )


def _check_steps(key: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ObservationError(key, expected=f"{low}..{high} steps", received=str(value))
