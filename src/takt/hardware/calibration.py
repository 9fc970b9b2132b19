"""What software gets out of a GPU: eight fitted constants and a few assumed ones.

A data sheet says what a device could do. How close a network comes depends on how its kernels are
launched, so published figures are sorted into a few *stacks*, each with its own time per layer.
Everything else is shared by all stacks and all devices; with constants per device the model would
describe the published figures better and the next device worse.

:data:`CALIBRATION` is what :mod:`takt.hardware.fitting` finds on the fitted half of
:mod:`takt.hardware.published`; a test repeats the fit. ``takt hardware --refit`` prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from takt.errors import ConfigError

__all__ = [
    "ACTIVATION_SHARE",
    "CALIBRATION",
    "COMPUTE_EXPONENT",
    "DEFAULT_STACK",
    "RANGES",
    "STACKS",
    "STRETCH",
    "Calibration",
    "Stack",
    "known_stacks",
    "stack_named",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A way to run a network, as far as it decides the time of a launch."""

    name: str
    """Name on the command line."""
    meaning: str
    """What belongs to it."""
    weight_bytes: int = 2
    """Bytes per weight."""

    @property
    def speed(self) -> int:
        """Rate of the tensor cores, as a multiple of their bf16 rate."""
        return 2 // self.weight_bytes


_ALL = (
    Stack(name="eager", meaning="kernels launched one by one by a host program in Python"),
    Stack(name="compiled", meaning="torch.compile or JAX's compiler"),
    Stack(
        name="graph",
        meaning="library kernels replayed without the host: CUDA graph, TensorRT engine, ggml",
    ),
    Stack(name="tuned", meaning="kernels written for this one network, replayed as a graph"),
    Stack(
        name="fp8", meaning="8-bit weights and multiplications, replayed as a graph", weight_bytes=1
    ),
)
STACKS: Mapping[str, Stack] = {stack.name: stack for stack in _ALL}
"""Every stack by name, from the slowest to the fastest."""

DEFAULT_STACK = "graph"
"""What a worker of Takt is: every shape is captured as a graph, with kernels of a library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The fitted constants."""

    feed_tflops: float
    """Rate at which one SM is fed with operands, in 1e12 operations per second. Multiplying and
    feeding take turns, so an SM that can multiply at rate ``p`` reaches ``1 / (1 + p / feed)`` of
    it: the wider the tensor cores, the smaller the part that is reached."""
    bandwidth: float
    """Part of the memory bandwidth that is reached."""
    prefix_layer: float
    """Launch time of a layer of the prefix, as a multiple of one of the denoise loop."""
    launch_us: Mapping[str, float]
    """Time per layer and denoise step that no amount of hardware removes, by stack: launches,
    dependencies, kernels too small to fill the device. In microseconds."""


CALIBRATION = Calibration(
    feed_tflops=7.11,
    bandwidth=0.732,
    prefix_layer=2.25,
    launch_us={"eager": 339.0, "compiled": 89.0, "graph": 74.6, "tuned": 24.7, "fp8": 48.0},
)
"""The constants in use."""

RANGES: Mapping[str, tuple[float, float]] = {
    "feed_tflops": (2.58, 7.85),
    "bandwidth": (0.71, 0.753),
    "prefix_layer": (1.39, 2.38),
    "launch_us.eager": (310.0, 483.0),
    "launch_us.compiled": (73.4, 119.0),
    "launch_us.graph": (69.2, 80.3),
    "launch_us.tuned": (12.6, 45.4),
    "launch_us.fp8": (46.2, 58.8),
}
"""Lowest and highest value of each constant when any one source is left out of the fit."""

ACTIVATION_SHARE = 0.3
"""Part of the bytes between kernels that reaches memory once kernels are fused. Assumed; between
0 and 1. It moves stage times by a few percent, since weights and caches dominate."""

COMPUTE_EXPONENT = 0.95
"""Speed of a compute-bound launch on a share of the SMs is the share to this power. Assumed;
between 0.9 and 1, since prefill scales nearly linearly with SMs."""

STRETCH: tuple[tuple[float, float], ...] = (
    (0.24, 1.33),
    (0.36, 1.21),
    (0.48, 1.09),
    (0.73, 1.06),
    (1.0, 1.0),
)
"""Share of the SMs and time of a launch that is not compute-bound, as a multiple of its time on
the whole device; straight between the points, inverse in the share below them. Measured by others
on the auto-regressive stage of a speech model on an H200 (sglang-omni #1934), so for denoise loops
it is an assumption, good to perhaps 10 %."""


def known_stacks() -> tuple[str, ...]:
    """Names :func:`stack_named` knows."""
    return tuple(STACKS)


def stack_named(name: str) -> Stack:
    """The stack of that name.

    Raises:
        ConfigError: There is none; the message lists those there are.
    """
    try:
        return STACKS[name]
    except KeyError:
        raise ConfigError(f"no stack {name!r}; known: {', '.join(STACKS)}") from None
