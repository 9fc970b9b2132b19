"""What a policy takes and gives: its cameras, axes, rates, tensors and layouts.

A :class:`PolicySpec` is the card a robot reads when it connects and the contract between gateway
and worker. :func:`takt.schema.plain.to_plain` makes it a dictionary for JSON or msgpack.

The parts:

- :class:`ObservationSpec`: cameras, state axes, history, prompt;
- :class:`ActionSpec`: action axes, horizon, control rate;
- :class:`TensorSpec`: the fixed-shape tensors of one row, per stage;
- :class:`LayoutSpec`: the shapes a launch was captured for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from takt.errors import ConfigError
from takt.schema.rules import (
    check_choice,
    check_distinct,
    check_holds,
    check_name,
    check_positive,
    check_sizes,
)

__all__ = [
    "DTYPES",
    "FLOW_INPUTS",
    "MAX_TENSOR_BYTES",
    "ActionSpec",
    "AxisSpec",
    "CameraSpec",
    "Interpolation",
    "LayoutSpec",
    "ObservationSpec",
    "PolicySpec",
    "ResizeRule",
    "TensorSpec",
]

ResizeRule: TypeAlias = Literal["exact", "stretch", "pad_center", "pad_left_top"]
"""How an image gets its size: it must have it already; stretched; scaled to fit with black on both
sides; scaled to fit with black to the left and above."""

Interpolation: TypeAlias = Literal["linear", "area"]
"""How pixels are mixed when an image is scaled."""

FLOW_INPUTS = ("noise", "previous_chunk", "prefix_weights", "frozen_steps")
"""Denoise inputs that every flow policy has, whether or not a request uses them."""

MAX_TENSOR_BYTES = 1 << 30
"""Largest tensor of one row."""

DTYPES = ("bool", "uint8", "int32", "int64", "float16", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraSpec:
    """One camera."""

    name: str
    """Name of the camera."""
    height: int
    """Height the policy sees, in pixels."""
    width: int
    """Width the policy sees, in pixels."""
    resize: ResizeRule = "exact"
    """How other sizes become this one."""
    interpolation: Interpolation = "linear"
    """How pixels are mixed when the image is scaled."""
    required: bool = True
    """Whether an observation without it is refused."""
    robot_may_resize: bool = True
    """Whether the server resizes by :mod:`takt.schema.resizing`, so that a robot can do it before
    it sends and the policy sees the same pixels."""

    def __post_init__(self) -> None:
        check_name("camera", self.name)
        check_positive(f"camera {self.name!r}", height=self.height, width=self.width)
        check_choice(f"camera {self.name!r}: resize", self.resize, get_args(ResizeRule))
        check_choice(
            f"camera {self.name!r}: interpolation", self.interpolation, get_args(Interpolation)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisSpec:
    """One value of a state or an action vector."""

    name: str
    """Name, such as ``shoulder_pan.pos``."""
    unit: str = ""
    """Unit, such as ``rad`` or ``m``; empty when it is not known."""
    relative: bool = False
    """Whether the network gives this action relative to the state of the observation. The robot
    always receives it as its unit says; decoding adds the state."""
    low: float | None = None
    """Least value ever sent to the robot; None: no bound is known."""
    high: float | None = None
    """Greatest value ever sent to the robot; None: no bound is known."""

    def __post_init__(self) -> None:
        check_name("axis", self.name)
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if not low < high:
            raise ConfigError(f"axis {self.name!r}: low must be below high, got {low} and {high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationSpec:
    """What an observation must have."""

    cameras: tuple[CameraSpec, ...] = ()
    """Cameras by name; images of further cameras are ignored."""
    state_dim: int = 0
    """Values of the state; 0: the policy reads none."""
    state: tuple[AxisSpec, ...] = ()
    """The values of the state in order; empty when they have no names."""
    prompt: bool = False
    """Whether an instruction is needed."""
    history: int = 1
    """Instants the policy reads at once."""
    history_spacing: int = 1
    """Control steps between two of these instants."""

    def __post_init__(self) -> None:
        check_distinct("cameras", [camera.name for camera in self.cameras])
        check_distinct("state", [axis.name for axis in self.state])
        check_positive("observation", history=self.history, history_spacing=self.history_spacing)
        if self.state_dim < 0 or len(self.state) not in {0, self.state_dim}:
            raise ConfigError(
                f"state_dim {self.state_dim} does not fit the {len(self.state)} axes of state"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """What a chunk of actions is."""

    action_dim: int
    """Values of one action sent to the robot."""
    model_action_dim: int
    """Values of one action inside the network, padded."""
    horizon: int
    """Steps in a chunk."""
    execution_horizon: int
    """Steps to execute before the next chunk replaces it."""
    control_hz: float | None = None
    """Steps per second the policy was trained for; None: not known."""
    axes: tuple[AxisSpec, ...] = ()
    """The values of an action in order; empty when they have no names."""

    def __post_init__(self) -> None:
        check_positive(
            "action", action_dim=self.action_dim, execution_horizon=self.execution_horizon
        )
        check_distinct("axes", [axis.name for axis in self.axes])
        if len(self.axes) not in {0, self.action_dim}:
            raise ConfigError(
                f"action_dim {self.action_dim} does not fit the {len(self.axes)} axes of action"
            )
        if self.model_action_dim < self.action_dim:
            raise ConfigError(
                f"model_action_dim must be at least action_dim {self.action_dim},"
                f" got {self.model_action_dim}"
            )
        if self.horizon < self.execution_horizon:
            raise ConfigError(
                f"execution_horizon must lie in 1..{self.horizon}, got {self.execution_horizon}"
            )
        if self.control_hz is not None and not 0 < self.control_hz < math.inf:
            raise ConfigError(f"control_hz must be positive and finite, got {self.control_hz}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One fixed-shape tensor of one row, without a batch axis."""

    name: str
    """Name within the slot or the cache."""
    shape: tuple[int, ...]
    """Lengths of its axes; empty for a single number."""
    dtype: str = "float32"
    """One of bool, uint8, int32, int64, float16, float32."""

    def __post_init__(self) -> None:
        check_name("tensor", self.name)
        check_choice(f"tensor {self.name!r}: dtype", self.dtype, DTYPES)
        if any(length < 1 for length in self.shape) or self.num_bytes > MAX_TENSOR_BYTES:
            raise ConfigError(
                f"tensor {self.name!r}: shape must be positive and below {MAX_TENSOR_BYTES} bytes,"
                f" got {list(self.shape)}"
            )

    @property
    def num_bytes(self) -> int:
        """Memory of one row's tensor."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSpec:
    """Shapes that launches are captured for: which cameras, how long an instruction."""

    name: str
    """Name for people."""
    cameras: tuple[str, ...] = ()
    """Cameras whose images the launch looks at."""
    num_images: int = 0
    """Most images a row of the launch has, for a policy that packs them in whichever camera's
    places; 0: those of ``cameras``."""
    prompt_tokens: int = 0
    """Longest instruction in tokens; 0: the policy has one length only."""

    def __post_init__(self) -> None:
        check_name("layout", self.name)
        check_distinct(f"layout {self.name!r}: cameras", list(self.cameras))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """Everything about a policy that is not its weights."""

    name: str
    """Name robots ask for."""
    architecture: str
    """Key of its times in a profile; fine-tuned variants share it."""
    digest: str = ""
    """Digest of the weights, to tell two versions apart; empty for a policy without weights."""
    observation: ObservationSpec
    """What an observation must have."""
    action: ActionSpec
    """What a chunk is."""
    prefix_inputs: tuple[TensorSpec, ...]
    """Tensors of one row that the prefix stage reads."""
    kv: tuple[TensorSpec, ...] = ()
    """Tensors of one row that a finished prefix leaves on the device."""
    denoise_inputs: tuple[TensorSpec, ...] = ()
    """Tensors of one row that the denoise stage reads beside the cache."""
    prefix_sizes: tuple[int, ...] = (1,)
    """Captured batch sizes of the prefix stage, rising."""
    denoise_sizes: tuple[int, ...] = (1,)
    """Captured batch sizes of the denoise stage, rising; empty for a single-pass policy."""
    layouts: tuple[LayoutSpec, ...] = (LayoutSpec(name="default"),)
    """Captured layouts, numbered from the cheapest to the dearest."""
    holds: tuple[int, ...] = (1,)
    """For each layout a bit mask of the layouts whose launches can hold its rows; the last one
    holds all."""
    sizes_are_maxima: bool = False
    """Whether ``state_dim``, ``action_dim`` and ``horizon`` are upper bounds and the actual sizes
    travel in each row's header."""

    def __post_init__(self) -> None:
        check_name("policy", self.name)
        check_sizes("prefix_sizes", self.prefix_sizes, may_be_empty=False)
        check_sizes("denoise_sizes", self.denoise_sizes, may_be_empty=True)
        _check_tensors(self)
        _check_layouts(self)
        check_holds(self.holds, len(self.layouts))

    @property
    def single_pass(self) -> bool:
        """Whether the prefix stage gives the actions."""
        return not self.denoise_sizes

    @property
    def slot_tensors(self) -> tuple[TensorSpec, ...]:
        """Tensors of a slot: what either stage reads, each once."""
        by_name = {tensor.name: tensor for tensor in (*self.prefix_inputs, *self.denoise_inputs)}
        return tuple(by_name.values())

    @property
    def is_flow(self) -> bool:
        """Whether the policy takes noise and a previous chunk."""
        return {tensor.name for tensor in self.denoise_inputs} >= set(FLOW_INPUTS)


def _check_tensors(spec: PolicySpec) -> None:
    if not spec.prefix_inputs:
        raise ConfigError("prefix_inputs must name at least one tensor")
    for field, tensors in (
        ("prefix_inputs", spec.prefix_inputs),
        ("denoise_inputs", spec.denoise_inputs),
        ("kv", spec.kv),
    ):
        check_distinct(field, [tensor.name for tensor in tensors])
    by_name: dict[str, TensorSpec] = {}
    for tensor in (*spec.prefix_inputs, *spec.denoise_inputs):
        if by_name.setdefault(tensor.name, tensor) != tensor:
            raise ConfigError(f"tensor {tensor.name!r} has two shapes")


def _check_layouts(spec: PolicySpec) -> None:
    check_distinct("layouts", [layout.name for layout in spec.layouts])
    known = {camera.name for camera in spec.observation.cameras}
    for layout in spec.layouts:
        unknown = [camera for camera in layout.cameras if camera not in known]
        if unknown:
            raise ConfigError(f"layout {layout.name!r}: no camera {unknown[0]!r} in this policy")
