# pyright: basic, reportMissingImports=false
# Torch's annotations are incomplete, and `make check` also runs where torch is not installed.
"""Flow matching: the instants of the steps, their embedding, guidance and integration.

A chunk starts as noise at time 1 and ends as actions at time 0. Guidance pulls rows towards the
chunk a robot is executing; a row without one has weight 0 and is integrated as if there were no
guidance, so both kinds share a batch.

Source of the guidance formulas: Black et al., "Real-Time Execution of Action Chunking Flow
Policies" (arXiv:2506.07339), with the weights LeRobot uses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from takt.policies.guidance import guidance_of, step_times

__all__ = ["FlowInputs", "Trace", "Velocity", "guided", "integrate", "silent", "time_table"]

Trace: TypeAlias = Callable[[str, Tensor], None]
"""Told of each intermediate tensor by name, for verification."""

Velocity: TypeAlias = Callable[[Tensor, int], Tensor]
"""The network: sample ``(B, T, A)`` and number of the step to velocity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowInputs:
    """The flow inputs of a batch."""

    noise: Tensor
    """``(B, horizon, model_action_dim)``."""
    previous: Tensor
    """The chunk being executed, same shape."""
    weights: Tensor
    """How strongly each step is drawn to it, ``(B, horizon)``."""


def silent(name: str, tensor: Tensor) -> None:
    """The trace that keeps nothing."""
    del name, tensor


def time_table(num_steps: int, width: int, min_period: float, max_period: float) -> Tensor:
    """Embedding of each step's instant, ``(num_steps, width)``: all sines, then all cosines.

    Computed in float64: angles reach 1571 rad, where float32 is off by 1e-4.
    """
    fraction = np.linspace(0.0, 1.0, width // 2)
    period = min_period * (max_period / min_period) ** fraction
    times = step_times(num_steps).astype(np.float64)
    angles = 2 * np.pi * times[:, None] / period[None, :]
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return torch.from_numpy(table.astype(np.float32))


def guided(
    velocity: Tensor, x: Tensor, inputs: FlowInputs, time: Tensor | float, gain: Tensor | float
) -> Tensor:
    """Bend the velocity at ``x`` towards the chunk being executed, by each step's weight.

    Args:
        velocity: What the network says.
        x: The sample.
        inputs: The chunks being executed and the weights.
        time: The instant.
        gain: Guidance weight of the step.
    """
    reached = x - time * velocity
    return velocity - gain * inputs.weights[:, :, None] * (inputs.previous - reached)


def integrate(
    velocity: Velocity,
    inputs: FlowInputs,
    *,
    num_steps: int,
    max_guidance: float,
    trace: Trace = silent,
) -> Tensor:
    """Follow the flow from noise to actions in Euler steps.

    Args:
        velocity: The network.
        inputs: Noise and guidance of each row.
        num_steps: Steps.
        max_guidance: Largest guidance weight.
        trace: Told of velocities.

    Returns:
        The sample at time 0, ``(B, horizon, model_action_dim)``, float32.
    """
    x = inputs.noise
    times, gains = step_times(num_steps), guidance_of(num_steps, max_guidance)
    for step in range(num_steps):
        v = velocity(x, step)
        trace(f"velocity.{step}", v)
        v = guided(v, x, inputs, float(times[step]), float(gains[step]))
        trace(f"velocity_guided.{step}", v)
        x = x + (-1.0 / num_steps) * v
    return x
