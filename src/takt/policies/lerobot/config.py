"""``config.json`` of a flow policy: what the network, the rows and the card need from it.

Options of training are skipped. An option that would change what is computed, and that we do not
compute, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from takt.errors import ConfigError
from takt.policies.lerobot.documents import Section
from takt.policies.lerobot.family import Family

__all__ = ["IMAGE_PREFIX", "STATE_FEATURE", "FlowConfig", "read_config"]

IMAGE_PREFIX = "observation.images."
STATE_FEATURE = "observation.state"
_ACTION_FEATURE = "action"
_EMPTY_CAMERA = "empty_camera_"
_DEFAULT_GUIDANCE = 10.0
_MAX_SIDE = 4096
_MAX_STEPS = 1000
_MAX_HORIZON = 4096
_MAX_DIM = 4096
_MAX_TOKENS = 8192
_MAX_CAMERAS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    """A flow policy's configuration."""

    cameras: tuple[str, ...]
    """Cameras of the policy in the order of the prefix, by their feature names without
    ``observation.images.``; cameras that are always empty are left out."""
    feature_sizes: Mapping[str, tuple[int, int]]
    """Height and width of each camera's image in the training data."""
    empty_cameras: int
    """Cameras that are always missing."""
    height: int
    """Height of an image for the network, in pixels."""
    width: int
    """Width of an image for the network, in pixels."""
    state_dim: int
    """Values of the state."""
    action_dim: int
    """Values of an action."""
    max_state_dim: int
    """Padded length of the state."""
    max_action_dim: int
    """Padded length of an action: what is integrated."""
    horizon: int
    """Steps in a chunk."""
    execution_horizon: int
    """Steps the policy was trained to execute of a chunk."""
    num_steps: int
    """Denoise steps."""
    min_period: float
    """Shortest period of the time embedding."""
    max_period: float
    """Longest period of the time embedding."""
    max_tokens: int
    """Longest instruction, in tokens."""
    is_relative: bool
    """Whether actions are relative to the state."""
    action_names: tuple[str, ...] | None
    """Names of the actions' values."""
    max_guidance: float
    """Largest guidance weight of real-time chunking."""


def read_config(section: Section, family: Family) -> FlowConfig:
    """Read a flow policy's configuration.

    Raises:
        ConfigError: A key is missing, impossible, or asks for what we do not compute.
    """
    _refuse_unserved(section)
    inputs = section.take_section("input_features")
    cameras = tuple(
        name.removeprefix(IMAGE_PREFIX) for name in inputs.values if name.startswith(IMAGE_PREFIX)
    )
    height, width = _image_size(section, family, inputs)
    action_dim = _dim(section.take_section("output_features"), _ACTION_FEATURE)
    state_dim = _dim(inputs, STATE_FEATURE)
    horizon = section.take_int("chunk_size", 1, _MAX_HORIZON)
    rtc = section.take_section("rtc_config")
    return FlowConfig(
        cameras=_real_cameras(section, cameras),
        feature_sizes={name: _feature_size(inputs, name) for name in cameras},
        empty_cameras=section.take_int("empty_cameras", 0, _MAX_CAMERAS, 0),
        height=height,
        width=width,
        state_dim=state_dim,
        action_dim=action_dim,
        max_state_dim=section.take_int("max_state_dim", state_dim, _MAX_DIM),
        max_action_dim=section.take_int("max_action_dim", action_dim, _MAX_DIM),
        horizon=horizon,
        execution_horizon=section.take_int("n_action_steps", 1, horizon),
        num_steps=section.take_int(family.steps_key, 1, _MAX_STEPS),
        min_period=section.take_float("min_period"),
        max_period=section.take_float("max_period"),
        max_tokens=section.take_int("tokenizer_max_length", 1, _MAX_TOKENS),
        is_relative=section.take_bool("use_relative_actions", False),
        action_names=_action_names(section, action_dim),
        max_guidance=rtc.take_float("max_guidance_weight", _DEFAULT_GUIDANCE),
    )


def _refuse_unserved(section: Section) -> None:
    for key in ("adapt_to_pi_aloha", "use_delta_joint_actions_aloha", "use_peft"):
        if section.take_bool(key, False):
            section.wrong(key, "false; this option is not served")
    section.take_int("n_obs_steps", 1, 1, 1)


def _real_cameras(section: Section, cameras: tuple[str, ...]) -> tuple[str, ...]:
    real = tuple(name for name in cameras if not name.startswith(_EMPTY_CAMERA))
    if not 1 <= len(real) <= _MAX_CAMERAS:
        raise ConfigError(
            f"{section.where}.input_features: expected 1..{_MAX_CAMERAS} features"
            f" {IMAGE_PREFIX}<camera>, got {len(real)}"
        )
    return real


def _dim(features: Section, name: str) -> int:
    feature = features.take_section(name)
    return feature.take_ints("shape", 1)[0]


def _feature_size(inputs: Section, camera: str) -> tuple[int, int]:
    height, width = inputs.take_section(IMAGE_PREFIX + camera).take_ints("shape", 3)[1:]
    return height, width


def _image_size(section: Section, family: Family, inputs: Section) -> tuple[int, int]:
    if section.values.get(family.size_key) is not None:
        first, second = section.take_ints(family.size_key, 2)
        height, width = (second, first) if family.is_width_first else (first, second)
    else:  # images are used at the size they come in, which all cameras share
        shapes = {
            inputs.take_section(name).take_ints("shape", 3)[1:]
            for name in inputs.values
            if name.startswith(IMAGE_PREFIX + _EMPTY_CAMERA) is False
            and name.startswith(IMAGE_PREFIX)
        }
        if len(shapes) != 1:
            section.wrong(family.size_key, "a size, as the cameras' sizes differ")
        height, width = shapes.pop()
    if max(height, width) > _MAX_SIDE:
        section.wrong(family.size_key, f"sides of 1..{_MAX_SIDE} pixels")
    return height, width


def _action_names(section: Section, action_dim: int) -> tuple[str, ...] | None:
    names = section.take_texts("action_feature_names")
    if names is not None and (len(names) != action_dim or len(set(names)) != action_dim):
        section.wrong("action_feature_names", f"{action_dim} different names")
    return names
