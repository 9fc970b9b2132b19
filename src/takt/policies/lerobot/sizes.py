"""Sizes of the parts that the families share, read off the shapes of their weights.

Two sizes cannot be seen in a weight: how a projection is divided into heads, for the vision tower
and for the transformers. The published models have fixed ones; another checkpoint brings them in
a file ``dims.json``, in the checkpoint or beside it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar

from takt.errors import ConfigError
from takt.policies.lerobot.documents import Section, read_document
from takt.policies.lerobot.names import Shapes
from takt.policies.lerobot.paths import CheckpointFiles

__all__ = [
    "DIMS_FILE",
    "PairedSizes",
    "StackSizes",
    "TowerSizes",
    "image_tokens",
    "read_dims",
    "stack_sizes",
    "tower_sizes",
]

DIMS_FILE = "dims.json"
_MAX_HEADS = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerSizes:
    """A vision tower."""

    width: int
    depth: int
    heads: int
    mlp: int
    patch: int
    """Side of a patch, in pixels."""
    positions: int
    """Learned positions: patches of the largest image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSizes:
    """A stack of transformer layers."""

    width: int
    depth: int
    mlp: int
    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedSizes:
    """A vision tower, and a language model and an expert whose layers attend together."""

    vision: TowerSizes
    language: StackSizes
    expert: StackSizes
    vocabulary: int
    image_tokens: int
    """Tokens of one image in the prefix, special tokens not counted."""

    published: ClassVar[tuple[int, int, int]]
    """Width and depth of the language model and width of the expert, of the published model."""

    def __post_init__(self) -> None:
        shared = [(s.depth, s.heads, s.kv_heads, s.head_dim) for s in (self.language, self.expert)]
        if shared[0] != shared[1]:
            raise ConfigError(f"language model and expert differ in layers or heads: {shared}")

    @property
    def num_layers(self) -> int:
        """Layers that leave keys and values."""
        return self.language.depth

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.language.kv_heads

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.language.head_dim

    @property
    def is_published(self) -> bool:
        """Whether these are the sizes of the published model."""
        return (self.language.width, self.language.depth, self.expert.width) == self.published


def read_dims(files: CheckpointFiles) -> Section | None:
    """The sizes that came with the checkpoint, if any did."""
    for folder in (files.directory, files.directory.parent):
        path = folder / DIMS_FILE
        if path.is_file():
            return read_document(path)
    return None


def tower_sizes(shapes: Shapes, dims: Section | None, known: dict[int, int]) -> TowerSizes:
    """Sizes of the tower ``vision``.

    Args:
        shapes: All parameters.
        dims: From :func:`read_dims`.
        known: Heads by the width of published towers.

    Raises:
        ConfigError: Parts are missing, or the number of heads is not known.
    """
    patch = _shape(shapes, "vision.patch.weight", 4)
    width = patch[0]
    if dims is not None:
        heads = dims.take_section("vision").take_int("num_attention_heads", 1, _MAX_HEADS)
    elif width in known:
        heads = known[width]
    else:
        raise _heads_unknown("vision tower", width)
    if width % heads:
        raise ConfigError(f"vision tower: {heads} heads do not divide the width {width}")
    return TowerSizes(
        width=width,
        depth=_depth(shapes, "vision"),
        heads=heads,
        mlp=_shape(shapes, "vision.layers.0.up.weight", 2)[0],
        patch=patch[2],
        positions=_shape(shapes, "vision.positions", 2)[0],
    )


def stack_sizes(
    shapes: Shapes, stack: str, dims: Section | None, known: dict[int, int]
) -> StackSizes:
    """Sizes of the stack of layers called ``stack``.

    Args:
        shapes: All parameters.
        stack: ``language`` or ``expert``.
        dims: Its part of ``dims.json``.
        known: Head dimension by the width of published stacks.

    Raises:
        ConfigError: Parts are missing, or the head dimension is not known or does not fit.
    """
    rows, width = _shape(shapes, f"{stack}.layers.0.query.weight", 2)
    kv_rows = _shape(shapes, f"{stack}.layers.0.key.weight", 2)[0]
    if dims is not None:
        head_dim = dims.take_int("head_dim", 2, 1 << 12)
    elif width in known:
        head_dim = known[width]
    else:
        raise _heads_unknown(stack, width)
    if rows % head_dim or kv_rows % head_dim or (rows // head_dim) % max(1, kv_rows // head_dim):
        raise ConfigError(f"{stack}: heads of {head_dim} do not divide {rows} and {kv_rows} rows")
    return StackSizes(
        width=width,
        depth=_depth(shapes, stack),
        mlp=_shape(shapes, f"{stack}.layers.0.gate.weight", 2)[0],
        heads=rows // head_dim,
        kv_heads=kv_rows // head_dim,
        head_dim=head_dim,
    )


def image_tokens(where: str, tower: TowerSizes, height: int, width: int) -> int:
    """Patches of one image.

    Raises:
        ConfigError: The image is no whole number of patches, or has more than the tower knows.
    """
    patches = (height // tower.patch) * (width // tower.patch)
    if height % tower.patch or width % tower.patch or not 0 < patches <= tower.positions:
        raise ConfigError(
            f"{where}: images of {width}x{height} do not fit a tower of"
            f" {math.isqrt(tower.positions)} patches of {tower.patch} pixels a side"
        )
    return patches


def _shape(shapes: Shapes, name: str, axes: int) -> tuple[int, ...]:
    shape = shapes.get(name)
    if shape is None or len(shape) != axes or min(shape) < 1:
        raise ConfigError(f"model.safetensors: no tensor of {axes} axes for {name}, got {shape}")
    return shape


def _depth(shapes: Shapes, stack: str) -> int:
    pattern = re.compile(rf"{stack}\.layers\.(\d+)\.")
    found = {int(match[1]) for name in shapes if (match := pattern.match(name))}
    if found != set(range(len(found))) or not found:
        raise ConfigError(f"model.safetensors: the layers of {stack} are not numbered from 0")
    return len(found)


def _heads_unknown(part: str, width: int) -> ConfigError:
    return ConfigError(
        f"{part}: no published model has width {width}, so its heads cannot be told from the"
        f" weights; put a {DIMS_FILE} into the checkpoint"
    )
