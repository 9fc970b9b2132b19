"""How long a launch takes on a device: its arithmetic, its memory traffic, its launches.

The time is a roofline plus a floor::

    max(operations / reached rate, bytes / reached bandwidth) + layers x steps x launch time

On a share of the SMs a compute-bound launch slows nearly in proportion, and anything else along
:data:`~takt.hardware.calibration.STRETCH`: memory bandwidth is not partitioned. Everything here is
modelled, not measured.

Start reading at :func:`stage_seconds`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from takt.core.request import Stage
from takt.errors import ConfigError, UsageError
from takt.hardware.architectures import Architecture, Layout, StageCost, architecture_named
from takt.hardware.calibration import (
    ACTIVATION_SHARE,
    CALIBRATION,
    COMPUTE_EXPONENT,
    STRETCH,
    Calibration,
    Stack,
    stack_named,
)
from takt.hardware.devices import Device, device_named
from takt.hardware.published import Published

__all__ = [
    "Load",
    "floor_seconds",
    "load_of",
    "loads_of",
    "predicted_ms",
    "seconds_of",
    "stage_seconds",
    "stretch",
    "traffic_bytes",
]

_TERA = 1e12


class Load(NamedTuple):
    """A launch on a device, before any fitted constant is applied."""

    stage: Stage
    """The stage."""
    stack: str
    """Name of the stack."""
    compute: float
    """Seconds of arithmetic at the peak rate of the whole device."""
    traffic: float
    """Seconds of memory traffic at the full bandwidth."""
    layer_steps: int
    """Layers that run one after the other."""
    sm_tflops: float
    """Peak rate of one SM in bf16, in 1e12 operations per second."""
    share: float
    """Part of the SMs the launch may use, above 0 and at most 1."""


def stage_seconds(
    architecture: Architecture,
    stage: Stage,
    layout: Layout,
    device: Device,
    stack: Stack,
    *,
    size: int = 1,
    share: float = 1.0,
    calibration: Calibration = CALIBRATION,
) -> float:
    """Modelled time of one launch alone on a device, in seconds.

    Args:
        architecture: The network.
        stage: Its stage.
        layout: What the rows hold.
        device: The GPU.
        stack: How the network is run.
        size: Rows in the batch, at least 1.
        share: Part of the SMs the launch may use, above 0 and at most 1.
        calibration: The fitted constants.

    Raises:
        ConfigError: The device cannot multiply 8-bit numbers and the stack needs it.
        UsageError: ``size`` or ``share`` is out of range.
    """
    cost = architecture.cost(stage, layout)
    return seconds_of(load_of(stage, cost, device, stack, size=size, share=share), calibration)


def load_of(
    stage: Stage,
    cost: StageCost,
    device: Device,
    stack: Stack,
    *,
    size: int = 1,
    share: float = 1.0,
) -> Load:
    """The launch as loads of ``device``; arguments and errors as for :func:`stage_seconds`."""
    if size < 1:
        raise UsageError(f"size must be at least 1, got {size}")
    if not 0 < share <= 1:
        raise UsageError(f"share must lie above 0 and be at most 1, got {share}")
    if stack.weight_bytes == 1 and not device.has_fp8:
        raise ConfigError(f"{device.title} cannot multiply 8-bit numbers; choose another stack")
    return Load(
        stage=stage,
        stack=stack.name,
        compute=size * cost.flops / (device.peak_tflops * stack.speed * _TERA),
        traffic=traffic_bytes(cost, stack, size) / (device.bandwidth_tbs * _TERA),
        layer_steps=cost.layer_steps,
        sm_tflops=device.peak_tflops / device.units,
        share=share,
    )


def traffic_bytes(cost: StageCost, stack: Stack, size: int) -> float:
    """Bytes a launch of ``size`` rows moves: weights once, caches and activations per row."""
    per_row = cost.row_bytes + ACTIVATION_SHARE * cost.activation_bytes
    return cost.weights * stack.weight_bytes + size * per_row


def seconds_of(load: Load, calibration: Calibration = CALIBRATION) -> float:
    """Modelled time of a load, in seconds."""
    reached = 1 / (1 + load.sm_tflops / calibration.feed_tflops)
    # The power law must not promise a small share more than its own peak.
    rate = min(reached * load.share**COMPUTE_EXPONENT, load.share)
    slower = stretch(load.share)
    launch = calibration.launch_us[load.stack] * 1e-6
    if load.stage is Stage.PREFIX:
        launch *= calibration.prefix_layer
    roofline = max(load.compute / rate, load.traffic / calibration.bandwidth * slower)
    return roofline + load.layer_steps * launch * slower


def stretch(share: float) -> float:
    """Time on a share of the SMs over time on all, for a launch that is not compute-bound."""
    least, most = STRETCH[0]
    if share <= least:
        return most * least / share
    for (left, slow), (right, fast) in pairwise(STRETCH):
        if share <= right:
            return slow + (fast - slow) * (share - left) / (right - left)
    return 1.0


def floor_seconds(
    cost: StageCost, device: Device, stack: Stack, *, size: int = 1, share: float = 1.0
) -> float:
    """Time that physics asks for: operations over peak, weights and caches over bandwidth."""
    peak = device.peak_tflops * stack.speed * _TERA * share
    moved = cost.weights * stack.weight_bytes + size * cost.row_bytes
    return max(size * cost.flops / peak, moved / (device.bandwidth_tbs * _TERA))


def loads_of(point: Published) -> tuple[Load, ...]:
    """The launches a published figure covers."""
    architecture = architecture_named(point.architecture)
    device = device_named(point.device)
    covered = ((Stage.PREFIX, point.prefix), (Stage.DENOISE, point.denoise))
    return tuple(
        load_of(
            stage,
            architecture.cost(stage, point.layout),
            device,
            stack_named(stack),
            size=point.size,
        )
        for stage, stack in covered
        if stack
    )


def predicted_ms(point: Published, calibration: Calibration = CALIBRATION) -> float:
    """What the model says a published figure should be, in milliseconds."""
    return 1e3 * sum(seconds_of(load, calibration) for load in loads_of(point))
