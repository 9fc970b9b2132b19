"""A `mini` checkpoint on disk: ``policy.json`` (the card) and ``model.safetensors`` (the weights).

Loading is all or nothing: every tensor of :func:`~takt.policies.mini.sizes.tensor_shapes` must be
there once, with its shape, as float16 or float32, and finite; nothing else may be.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from takt.errors import ConfigError
from takt.policies.flow import flow_tensors
from takt.policies.mini.sizes import MiniSizes, tensor_shapes
from takt.policies.mini.words import WordTokenizer
from takt.schema.plain import read_plain
from takt.schema.spec import (
    ActionSpec,
    AxisSpec,
    CameraSpec,
    LayoutSpec,
    ObservationSpec,
    PolicySpec,
    TensorSpec,
)

__all__ = [
    "CARD_FILE",
    "MAX_CARD_BYTES",
    "MAX_SHOWN",
    "MAX_STEPS",
    "MAX_WEIGHTS_BYTES",
    "MOST_LEAST_MS",
    "SHIPPED",
    "WEIGHTS_FILE",
    "MiniCard",
    "MiniOptions",
    "mini_spec",
    "open_tensors",
    "read_card",
    "read_weights",
]

open_tensors: Any = safe_open  # the package has no annotations

CARD_FILE = "policy.json"
WEIGHTS_FILE = "model.safetensors"

SHIPPED = Path(__file__).parent / "weights"
"""Directory of the checkpoint in the package."""

MAX_CARD_BYTES = 1 << 20
MAX_WEIGHTS_BYTES = 1 << 28
MAX_SHOWN = 5
MAX_STEPS = 100
MOST_LEAST_MS = 60_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniCard:
    """What ``policy.json`` says."""

    family: Literal["mini"]
    """Tells the file apart from other policies' cards."""
    description: str
    """One sentence for people."""
    sizes: MiniSizes
    """Sizes of the network."""
    num_steps: int
    """Euler steps of the denoise stage."""
    execution_horizon: int
    """Steps to execute before the next chunk replaces the last."""
    control_hz: float
    """Steps per second."""
    camera: CameraSpec
    """The one camera."""
    state: tuple[AxisSpec, ...]
    """Proprioception, in order."""
    state_mean: tuple[float, ...]
    """Mean of each value in the training data."""
    state_std: tuple[float, ...]
    """Standard deviation of each value in the training data."""
    action: tuple[AxisSpec, ...]
    """An action, in order."""
    action_mean: tuple[float, ...]
    """Mean that decoding adds to each value."""
    action_std: tuple[float, ...]
    """Factor that decoding applies to each value before."""
    vocabulary: tuple[str, ...]
    """Known words, in the order of the word table."""
    prefix_sizes: tuple[int, ...] = (1, 2, 4)
    """Batch sizes to compile for the prefix stage."""
    denoise_sizes: tuple[int, ...] = (1, 2, 4, 8)
    """Batch sizes to compile for the denoise stage."""

    def __post_init__(self) -> None:
        sizes = self.sizes
        if not 1 <= self.num_steps <= MAX_STEPS:
            raise ConfigError(f"num_steps must lie in 1..{MAX_STEPS}, got {self.num_steps}")
        for name, length in (("state", sizes.state_dim), ("action", sizes.action_dim)):
            for field in (name, f"{name}_mean", f"{name}_std"):
                if len(getattr(self, field)) != length:
                    raise ConfigError(f"{field} must have {length} entries")
        numbers = (*self.state_mean, *self.action_mean)
        factors = (*self.state_std, *self.action_std)
        if not all(map(math.isfinite, (*numbers, *factors))) or min(factors) <= 0:
            raise ConfigError("means must be finite, standard deviations finite and positive")
        if (self.camera.height, self.camera.width) != (sizes.image_size, sizes.image_size):
            raise ConfigError(f"camera must be {sizes.image_size} pixels high and wide")
        if self.tokenizer().size != sizes.vocabulary_size:
            raise ConfigError(
                f"vocabulary_size is {sizes.vocabulary_size}, the vocabulary makes"
                f" {self.tokenizer().size}"
            )

    def tokenizer(self) -> WordTokenizer:
        """The tokenizer of this vocabulary."""
        return WordTokenizer(self.vocabulary, self.sizes.num_words)


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniOptions:
    """How a served `mini` behaves."""

    at_least_ms: float = 0.0
    """For experiments: time that a prefix launch and a denoise launch last together at least, half
    of it each. A launch that is done sooner is waited for; the answer is the same."""

    def __post_init__(self) -> None:
        if not 0 <= self.at_least_ms <= MOST_LEAST_MS:
            raise ConfigError(
                f"at_least_ms must lie in 0..{MOST_LEAST_MS:g}, got {self.at_least_ms}"
            )


def read_card(directory: Path) -> MiniCard:
    """Read and check ``policy.json``.

    Raises:
        ConfigError: It is missing, no JSON, or says something impossible; the message has the path
            of the key.
    """
    text = _read_bytes(directory / CARD_FILE, MAX_CARD_BYTES)
    try:
        plain: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{directory / CARD_FILE}: not JSON: {error}") from error
    return read_plain(MiniCard, plain, CARD_FILE)


def read_weights(directory: Path, sizes: MiniSizes) -> dict[str, NDArray[np.float32]]:
    """Read and check ``model.safetensors``, as float32.

    Raises:
        ConfigError: The file is damaged, or a tensor is missing, unexpected, of another shape or
            dtype, or not finite. The message lists them.
    """
    path = directory / WEIGHTS_FILE
    _check_length(path, MAX_WEIGHTS_BYTES)
    expected = tensor_shapes(sizes)
    try:
        with open_tensors(path, framework="numpy") as file:
            names: list[str] = list(file.keys())
            _check_names(
                path, expected, {name: tuple(file.get_slice(name).get_shape()) for name in names}
            )
            raw: dict[str, NDArray[Any]] = {name: file.get_tensor(name) for name in expected}
    except (SafetensorError, OSError, TypeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return {name: _as_float32(path, name, tensor) for name, tensor in raw.items()}


def mini_spec(name: str, directory: Path, card: MiniCard) -> PolicySpec:
    """The spec of a checkpoint, under the name robots ask for.

    Raises:
        ConfigError: The weights file cannot be read for its digest.
    """
    sizes = card.sizes
    state = TensorSpec(name="state", shape=(sizes.state_dim,))
    image_shape = (sizes.image_size, sizes.image_size, 3)
    return PolicySpec(
        name=name,
        architecture="mini",
        digest=_digest(directory),
        observation=ObservationSpec(
            cameras=(card.camera,), state_dim=sizes.state_dim, state=card.state, prompt=True
        ),
        action=ActionSpec(
            action_dim=sizes.action_dim,
            model_action_dim=sizes.action_dim,
            horizon=sizes.horizon,
            execution_horizon=card.execution_horizon,
            control_hz=card.control_hz,
            axes=card.action,
        ),
        prefix_inputs=(
            TensorSpec(name="image", shape=image_shape, dtype="uint8"),
            TensorSpec(name="words", shape=(sizes.num_words,), dtype="int32"),
        ),
        kv=(TensorSpec(name="kv", shape=sizes.kv_shape),),
        denoise_inputs=(state, *flow_tensors(sizes.horizon, sizes.action_dim)),
        prefix_sizes=card.prefix_sizes,
        denoise_sizes=card.denoise_sizes,
        layouts=(LayoutSpec(name="default", cameras=(card.camera.name,)),),
    )


def _digest(directory: Path) -> str:
    digest = hashlib.sha256()
    for file, most in ((CARD_FILE, MAX_CARD_BYTES), (WEIGHTS_FILE, MAX_WEIGHTS_BYTES)):
        digest.update(_read_bytes(directory / file, most))
    return f"sha256:{digest.hexdigest()}"


def _read_bytes(path: Path, most: int) -> bytes:
    _check_length(path, most)
    return path.read_bytes()


def _check_length(path: Path, most: int) -> None:
    try:
        length = path.stat().st_size
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if length > most:
        raise ConfigError(f"{path}: expected at most {most} bytes, got {length}")


def _check_names(
    path: Path, expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> None:
    faults = [f"missing {name}" for name in expected if name not in found]
    faults += [f"unexpected {name}" for name in found if name not in expected]
    faults += [
        f"{name} has shape {found[name]}, expected {shape}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    if faults:
        more = f" and {len(faults) - MAX_SHOWN} more" if len(faults) > MAX_SHOWN else ""
        raise ConfigError(f"{path}: {'; '.join(faults[:MAX_SHOWN])}{more}")


def _as_float32(path: Path, name: str, tensor: NDArray[Any]) -> NDArray[np.float32]:
    if tensor.dtype.name not in {"float16", "float32"}:
        raise ConfigError(f"{path}: {name} must be float16 or float32, got {tensor.dtype}")
    if not np.isfinite(tensor).all():
        raise ConfigError(f"{path}: {name} holds NaN or infinity")
    return np.ascontiguousarray(tensor, dtype=np.float32)
