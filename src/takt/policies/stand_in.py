"""Stand-ins: the card of a known architecture, the answers of `echo`.

A paced device takes a GPU's time and computes nothing, so it needs policies that say what a real
one says (cameras, sizes, layouts, horizon, action width, control rate) and need no weights. A
stand-in for pi0 is called ``paced:pi0``, in the catalog and on its card, so that nobody takes it
for the policy itself. Images are checked, resized and written as for the real one, which costs the
gateway what it really costs; then ``action[i, j] = state[j] + i``, which shows whose answer it is.

Dimensions of the networks are those of :mod:`takt.hardware.architectures`. A robot's own widths and
rates are not the network's; those here are the robots the authors show, or assumed.

Start reading at :data:`STAND_INS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from takt.errors import ConfigError, ObservationError
from takt.policies.echo import EchoNetwork, EchoOptions
from takt.policies.interface import Network, Placement
from takt.schema.check import check_observation
from takt.schema.observation import Observation
from takt.schema.row import RowHeader, RowRequest
from takt.schema.spec import (
    ActionSpec,
    CameraSpec,
    LayoutSpec,
    ObservationSpec,
    PolicySpec,
    ResizeRule,
    TensorSpec,
)

__all__ = [
    "PACED",
    "STAND_INS",
    "StandIn",
    "StandInOptions",
    "StandInPreprocessor",
    "check_fits_device",
    "paced_architecture",
    "stand_in_named",
    "stand_in_network",
]

PACED = "paced:"
"""What the name of every stand-in begins with; the architecture follows."""

_RGB = 3
_LETTERS_PER_TOKEN = 4
"""A guess at what a tokenizer makes of an instruction; it decides the layout of a row."""


class _Row(NamedTuple):
    """What a row holds, as far as layouts tell rows apart."""

    cameras: int
    prompt_tokens: int

    def fits_in(self, other: _Row) -> bool:
        return self.cameras <= other.cameras and self.prompt_tokens <= other.prompt_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """An architecture as robots meet it."""

    architecture: str
    """Its name in :mod:`takt.hardware`."""
    cameras: tuple[str, ...]
    """Its cameras."""
    image_side: int
    """Height and width of an image, in pixels."""
    resize: ResizeRule = "pad_center"
    """How images of other sizes become this one."""
    camera_counts: tuple[int, ...]
    """Numbers of cameras it is captured for, rising; the last is all of them."""
    prompts: tuple[int, ...]
    """Prompt lengths it is captured for, in tokens, rising."""
    action_dim: int
    """Values of a state and of an action of the robot."""
    model_action_dim: int
    """Values of an action inside the network."""
    horizon: int
    """Steps in a chunk."""
    control_hz: float
    """Control ticks per second."""

    @property
    def layouts(self) -> tuple[_Row, ...]:
        """What each layout holds, from the cheapest to the dearest."""
        return tuple(_Row(n, tokens) for n in self.camera_counts for tokens in self.prompts)

    def layout_of(self, cameras: int, prompt: str) -> int:
        """The cheapest layout that holds a row; the last one holds what fits in none."""
        layouts = self.layouts
        tokens = -(-len(prompt) // _LETTERS_PER_TOKEN)
        row = _Row(cameras, min(tokens, self.prompts[-1]))
        return next(index for index, layout in enumerate(layouts) if row.fits_in(layout))

    def spec(self, name: str, options: StandInOptions) -> PolicySpec:
        """Its card."""
        fewest, layouts = self.camera_counts[0], self.layouts
        state = TensorSpec(name="state", shape=(self.action_dim,))
        side = self.image_side
        images = TensorSpec(
            name="images", shape=(len(self.cameras), side, side, _RGB), dtype="uint8"
        )
        return PolicySpec(
            name=name,
            architecture=PACED + self.architecture,
            observation=ObservationSpec(
                cameras=tuple(
                    CameraSpec(
                        name=camera,
                        height=side,
                        width=side,
                        resize=self.resize,
                        required=index < fewest,
                    )
                    for index, camera in enumerate(self.cameras)
                ),
                state_dim=self.action_dim,
                prompt=True,
            ),
            action=ActionSpec(
                action_dim=self.action_dim,
                model_action_dim=self.model_action_dim,
                horizon=self.horizon,
                execution_horizon=self.horizon // 2,
                control_hz=self.control_hz,
            ),
            prefix_inputs=(images, state),
            kv=(state,),
            denoise_inputs=(state,),
            prefix_sizes=options.prefix_sizes,
            denoise_sizes=options.denoise_sizes,
            layouts=tuple(
                LayoutSpec(
                    name=f"{layout.cameras}x{layout.prompt_tokens}",
                    num_images=layout.cameras,
                    prompt_tokens=layout.prompt_tokens,
                )
                for layout in layouts
            ),
            holds=tuple(
                sum(1 << at for at, other in enumerate(layouts) if layout.fits_in(other))
                for layout in layouts
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInOptions:
    """What a stand-in is captured for."""

    prefix_sizes: tuple[int, ...] = (1, 2, 4)
    """Captured batch sizes of the prefix stage, rising."""
    denoise_sizes: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Captured batch sizes of the denoise stage, rising."""

    def __post_init__(self) -> None:
        if not self.denoise_sizes:
            raise ConfigError("denoise_sizes: every stand-in has two stages, got no size")


_OPENPI_CAMERAS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")

_ALL = (
    StandIn(  # openpi's ALOHA: two arms of six joints and a gripper, 50 Hz
        architecture="pi0",
        cameras=_OPENPI_CAMERAS,
        image_side=224,
        camera_counts=(2, 3),
        prompts=(24, 48),
        action_dim=14,
        model_action_dim=32,
        horizon=50,
        control_hz=50.0,
    ),
    StandIn(
        architecture="pi05",
        cameras=_OPENPI_CAMERAS,
        image_side=224,
        camera_counts=(2, 3),
        prompts=(64, 200),
        action_dim=14,
        model_action_dim=32,
        horizon=50,
        control_hz=50.0,
    ),
    StandIn(  # SO-100: five joints and a gripper, 30 Hz
        architecture="smolvla",
        cameras=("camera1", "camera2"),
        image_side=512,
        resize="pad_left_top",
        camera_counts=(1, 2),
        prompts=(16, 48),
        action_dim=6,
        model_action_dim=32,
        horizon=50,
        control_hz=30.0,
    ),
    StandIn(  # width and rate of the robot assumed
        architecture="groot-n1.7",
        cameras=("ego_view", "wrist_view"),
        image_side=256,
        camera_counts=(1, 2),
        prompts=(48,),
        action_dim=29,
        model_action_dim=132,
        horizon=40,
        control_hz=30.0,
    ),
    StandIn(  # cameras, widths and rate of the robot assumed
        architecture="xr0",
        cameras=("base", "wrist"),
        image_side=256,
        camera_counts=(1, 2),
        prompts=(48,),
        action_dim=14,
        model_action_dim=32,
        horizon=30,
        control_hz=30.0,
    ),
)

STAND_INS = {stand_in.architecture: stand_in for stand_in in _ALL}
"""Every stand-in by its architecture."""


def paced_architecture(policy: str) -> str | None:
    """The architecture that ``paced:ARCHITECTURE`` names; None for any other text."""
    return policy.removeprefix(PACED) if policy.startswith(PACED) else None


def check_fits_device(name: str, policy: str, *, is_paced: bool) -> None:
    """Refuse a stand-in on a device that computes, and a real policy on one that does not.

    Raises:
        ConfigError: Model ``name`` cannot be served by ``policy`` on such a device.
    """
    architecture = paced_architecture(policy)
    if is_paced and architecture is None:
        known = ", ".join(PACED + known for known in STAND_INS)
        raise ConfigError(
            f"model {name!r}: a paced device runs stand-ins, got policy {policy!r}; there are:"
            f" {known}"
        )
    if architecture is not None:
        stand_in_named(architecture)
        if not is_paced:
            raise ConfigError(f"model {name!r}: policy {policy!r} needs a paced device")


def stand_in_named(architecture: str) -> StandIn:
    """The stand-in for an architecture.

    Raises:
        ConfigError: There is none; the message lists those there are.
    """
    try:
        return STAND_INS[architecture]
    except KeyError:
        known = ", ".join(STAND_INS)
        raise ConfigError(f"no stand-in for {architecture!r}; there are: {known}") from None


class StandInPreprocessor:
    """Checks and writes what the real policy reads, with a guess at the length of the prompt.

    Args:
        stand_in: Which one.
        spec: Its card.
    """

    def __init__(self, stand_in: StandIn, spec: PolicySpec) -> None:
        from takt.schema.resizing import write_image  # imports OpenCV

        self.spec = spec
        self._stand_in = stand_in
        self._write_image = write_image

    def write(
        self, observation: Observation, slot: Mapping[str, NDArray[Any]], request: RowRequest
    ) -> RowHeader:
        """Write one row; see :meth:`takt.policies.interface.Preprocessor.write`."""
        check_observation(observation, self.spec.observation)
        action = self.spec.action
        horizon = request.horizon or action.horizon
        if horizon > action.horizon:
            expected = f"1..{action.horizon} steps"
            raise ObservationError("horizon", expected=expected, received=f"{horizon} steps")
        cameras = self.spec.observation.cameras
        present = [camera for camera in cameras if camera.name in observation.images]
        for place, camera in enumerate(present):
            self._write_image(observation.images[camera.name], camera, slot["images"][place])
        slot["state"][...] = np.asarray(observation.state, np.float32)
        return RowHeader(
            layout=self._stand_in.layout_of(len(present), observation.prompt or ""),
            state_dim=action.action_dim,
            horizon=horizon,
            action_dim=action.action_dim,
        )


def stand_in_network(spec: PolicySpec, placement: Placement) -> Network:
    """The part of a worker: it carries states through the cache and takes no time of its own."""
    return EchoNetwork(spec, EchoOptions(), placement)
