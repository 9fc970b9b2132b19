"""The processor files of a checkpoint: which steps there are, and their statistics.

LeRobot runs the steps that JSON names, and imports classes from it. Here a step is known by its
registered name or the checkpoint is refused; what the steps compute is
:mod:`takt.policies.lerobot.rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from takt.errors import ConfigError
from takt.policies.interface import FloatArray
from takt.policies.lerobot.config import IMAGE_PREFIX, STATE_FEATURE, FlowConfig
from takt.policies.lerobot.documents import Section, read_document
from takt.policies.lerobot.family import Family
from takt.policies.lerobot.paths import CheckpointFiles
from takt.policies.lerobot.tensor_file import read_arrays

__all__ = ["POSTPROCESSOR_FILE", "PREPROCESSOR_FILE", "Pipeline", "Scaling", "read_pipeline"]

PREPROCESSOR_FILE = "policy_preprocessor.json"
POSTPROCESSOR_FILE = "policy_postprocessor.json"

_PASSIVE = ("to_batch_processor", "device_processor")
"""Steps about batch axes and devices, which a row does not have."""
_STATISTICS = {
    "MEAN_STD": ("mean", "std"),
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
}
_SMALLEST_RANGE = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scaling:
    """Normalisation of one feature: ``forward`` into model space, ``backward`` out of it."""

    mode: str
    """MEAN_STD, MIN_MAX, QUANTILES, QUANTILE10 or IDENTITY."""
    first: FloatArray
    """Mean, or the lower end."""
    second: FloatArray
    """Standard deviation, or the upper end."""
    eps: float = 1e-8

    def forward(self, values: FloatArray) -> FloatArray:
        """Robot units to model space, on the last axis."""
        if self.mode == "IDENTITY":
            return values
        if self.mode == "MEAN_STD":
            return ((values - self.first) / (self.second + self.eps)).astype(np.float32)
        return (2 * (values - self.first) / self._range() - 1).astype(np.float32)

    def backward(self, values: FloatArray) -> FloatArray:
        """Model space to robot units, on the last axis."""
        if self.mode == "IDENTITY":
            return values
        if self.mode == "MEAN_STD":
            return values * self.second + self.first
        return ((values + 1) * self._range() / 2 + self.first).astype(np.float32)

    @property
    def unit(self) -> FloatArray:
        """How far one model-space unit is in robot units, per column."""
        if self.mode == "IDENTITY":
            return np.ones_like(self.first)
        return self.second if self.mode == "MEAN_STD" else (self._range() / 2).astype(np.float32)

    def _range(self) -> FloatArray:
        span = self.second - self.first
        return np.where(span == 0, _SMALLEST_RANGE, span).astype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pipeline:
    """What a checkpoint's processor files say."""

    state: Scaling
    action: Scaling
    tokenizer_name: str
    """Hub name of the tokenizer."""
    pads_to_longest: bool
    """Whether LeRobot pads instructions to the longest of a batch; the actions are the same."""
    relative: NDArray[np.bool_]
    """Per action column, whether the network gives it relative to the state."""
    robot_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """The robot's name of each camera whose name the checkpoint changes."""


def read_pipeline(files: CheckpointFiles, config: FlowConfig, family: Family) -> Pipeline:
    """Read both processor files.

    Raises:
        ConfigError: A file or a statistic is missing, a step is not known or not served.
    """
    before = _steps(
        files,
        PREPROCESSOR_FILE,
        (
            "rename_observations_processor",
            family.newline_step,
            "tokenizer_processor",
            "relative_actions_processor",
            "normalizer_processor",
        ),
    )
    after = _steps(
        files, POSTPROCESSOR_FILE, ("unnormalizer_processor", "absolute_actions_processor")
    )
    tokens = _needed(before, "tokenizer_processor", PREPROCESSOR_FILE).take_section("config")
    _needed(before, family.newline_step, PREPROCESSOR_FILE)
    if tokens.take_int("max_length", 1, 1 << 20) != config.max_tokens:
        tokens.wrong("max_length", f"tokenizer_max_length of config.json, {config.max_tokens}")
    if tokens.take_text("padding_side", "right") != "right":
        tokens.wrong("padding_side", "right")
    normalizer = _needed(before, "normalizer_processor", PREPROCESSOR_FILE)
    unnormalizer = _needed(after, "unnormalizer_processor", POSTPROCESSOR_FILE)
    return Pipeline(
        state=_scaling(files, normalizer, "STATE", STATE_FEATURE, config.state_dim),
        action=_scaling(files, unnormalizer, "ACTION", "action", config.action_dim),
        tokenizer_name=tokens.take_text("tokenizer_name", family.default_tokenizer),
        pads_to_longest=tokens.values.get("padding", "max_length") == "longest",
        relative=_relative_columns(before, after, config),
        robot_names=_robot_names(before.get("rename_observations_processor")),
    )


def _steps(files: CheckpointFiles, name: str, known: tuple[str, ...]) -> dict[str, Section]:
    if not files.has(name):
        raise ConfigError(
            f"{files.directory / name}: no such file; a checkpoint from before LeRobot 0.4 is"
            " converted with LeRobot's migrate_policy_normalization"
        )
    document = read_document(files.path(name))
    steps: dict[str, Section] = {}
    for step in document.take_sections("steps"):
        kind = step.values.get("registry_name")
        if not isinstance(kind, str) or (kind not in known and kind not in _PASSIVE):
            named = kind if kind is not None else step.values.get("class")
            raise ConfigError(
                f"{step.where}: the step {str(named)[:60]!r} is not known; known:"
                f" {', '.join((*known, *_PASSIVE))}"
            )
        if kind in _PASSIVE:
            continue
        if kind in steps or (steps and known.index(kind) < known.index(next(reversed(steps)))):
            raise ConfigError(f"{step.where}: the step {kind!r} comes twice or out of order")
        steps[kind] = step
    return steps


def _needed(steps: Mapping[str, Section], kind: str, file: str) -> Section:
    if kind not in steps:
        raise ConfigError(f"{file}: the step {kind!r} is missing")
    return steps[kind]


def _scaling(
    files: CheckpointFiles, step: Section, kind: str, feature: str, length: int
) -> Scaling:
    config = step.take_section("config")
    modes = config.take_section("norm_map")
    if modes.take_text("VISUAL", "IDENTITY") != "IDENTITY":
        modes.wrong("VISUAL", "IDENTITY for this family")
    mode = modes.take_text(kind, "IDENTITY")
    if mode == "IDENTITY":
        zeros = np.zeros(length, np.float32)
        return Scaling(mode=mode, first=zeros, second=zeros)
    if mode not in _STATISTICS:
        modes.wrong(kind, f"one of {', '.join(_STATISTICS)}, IDENTITY")
    path = files.path(step.take_text("state_file"))
    arrays = read_arrays(path)
    first, second = (
        _statistic(str(path), arrays, f"{feature}.{name}", length) for name in _STATISTICS[mode]
    )
    eps = config.take_float("eps", 1e-8)
    return Scaling(mode=mode, first=first, second=second, eps=eps)


def _statistic(
    path: str, arrays: Mapping[str, NDArray[np.generic]], name: str, length: int
) -> FloatArray:
    found = arrays.get(name)
    if found is None:
        raise ConfigError(f"{path}: the statistic {name} is missing")
    if found.shape != (length,) or found.dtype.kind != "f":
        raise ConfigError(
            f"{path}: {name} must be {length} floats, got {found.dtype} of {found.shape}"
        )
    values = found.astype(np.float32)
    if not np.isfinite(values).all():
        raise ConfigError(f"{path}: {name} holds NaN or infinity")
    return values


def _relative_columns(
    before: Mapping[str, Section], after: Mapping[str, Section], config: FlowConfig
) -> NDArray[np.bool_]:
    step = before.get("relative_actions_processor")
    section = None if step is None else step.take_section("config")
    enabled = section is not None and section.take_bool("enabled", False)
    adder = after.get("absolute_actions_processor")
    adds = adder is not None and adder.take_section("config").take_bool("enabled", False)
    if enabled != adds or enabled != config.is_relative:
        raise ConfigError(
            f"{PREPROCESSOR_FILE}, {POSTPROCESSOR_FILE} and config.json disagree about relative"
            f" actions: {enabled}, {adds}, {config.is_relative}"
        )
    if section is None or not enabled:
        return np.zeros(config.action_dim, np.bool_)
    if config.action_dim > config.state_dim:
        raise ConfigError("relative actions need a state as wide as the action")
    names = section.take_texts("action_names") or config.action_names
    if names is None:
        return np.ones(config.action_dim, np.bool_)
    if len(names) != config.action_dim:
        section.wrong("action_names", f"{config.action_dim} names")
    words = [word.lower() for word in section.take_texts("exclude_joints") or ()]
    return np.array([not any(word in name.lower() for word in words) for name in names])


def _robot_names(step: Section | None) -> dict[str, str]:
    if step is None:
        return {}
    renames = step.take_section("config").take_section("rename_map")
    robot_names: dict[str, str] = {}
    for theirs in renames.values:
        ours = renames.take_text(theirs)
        is_camera = theirs.startswith(IMAGE_PREFIX) and ours.startswith(IMAGE_PREFIX)
        if not is_camera and theirs != ours:
            renames.wrong(theirs, f"a camera, both names starting with {IMAGE_PREFIX}")
        if is_camera:
            robot_names[ours.removeprefix(IMAGE_PREFIX)] = theirs.removeprefix(IMAGE_PREFIX)
    return robot_names
