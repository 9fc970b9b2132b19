# pyright: basic, reportMissingImports=false
# Torch's annotations are incomplete, and `make check` also runs where torch is not installed.
"""The vision tower: patches of an image to tokens (the SigLIP layout)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from takt.policies.lerobot.sizes import TowerSizes
from takt.policies.networks.transformer import gelu_tanh

__all__ = ["VisionLayer", "VisionTower", "full_grid"]

_LAYER_NORM_EPS = 1e-6


def full_grid(sizes: TowerSizes, height: int, width: int) -> Tensor:
    """Learned position of each patch, row by row, of an image that may be smaller than the largest.

    A patch takes the position whose cell its fractional coordinate falls into. In float32, as the
    published models were trained: where the patches of a side are no power of two, rounding
    moves some of them to a neighbour.
    """
    side = math.isqrt(sizes.positions)
    cells = torch.arange(1 / side, 1.0, 1 / side, dtype=torch.float32)

    def places(count: int) -> Tensor:
        fractions = torch.arange(count, dtype=torch.float32) * (1.0 / count)
        return torch.bucketize(fractions.clamp(max=1.0 - 1e-6), cells, right=True)

    rows, columns = places(height // sizes.patch), places(width // sizes.patch)
    return (rows[:, None] * side + columns[None, :]).flatten()


class VisionTower(nn.Module):
    """Patches, learned positions, transformer layers, a last norm.

    Args:
        sizes: Its sizes.
        height: Height of the images, in pixels.
        width: Width of the images, in pixels.
        is_bucketed: Whether positions follow :func:`full_grid`; else patch ``i`` has position
            ``i``.
    """

    used: Tensor
    """Learned position of each patch."""

    def __init__(self, sizes: TowerSizes, height: int, width: int, *, is_bucketed: bool) -> None:
        super().__init__()
        self.sizes = sizes
        self.patch = nn.Conv2d(3, sizes.width, sizes.patch, sizes.patch)
        self.positions = nn.Parameter(torch.empty(sizes.positions, sizes.width))
        self.layers = nn.ModuleList(VisionLayer(sizes) for _ in range(sizes.depth))
        self.norm = nn.LayerNorm(sizes.width, eps=_LAYER_NORM_EPS)
        count = (height // sizes.patch) * (width // sizes.patch)
        with torch.device("cpu"):
            used = full_grid(sizes, height, width) if is_bucketed else torch.arange(count)
        self.register_buffer("used", used, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Tokens ``(n, patches, width)`` of ``images`` ``(n, height, width, 3)`` in [-1, 1]."""
        pixels = images.permute(0, 3, 1, 2).to(self.patch.weight.dtype)
        x = self.patch(pixels).flatten(2).transpose(1, 2)
        x = x + self.positions[self.used]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class VisionLayer(nn.Module):
    """Full attention and an MLP, each behind a layer norm."""

    def __init__(self, sizes: TowerSizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.norm_attention = nn.LayerNorm(sizes.width, eps=_LAYER_NORM_EPS)
        self.query = nn.Linear(sizes.width, sizes.width)
        self.key = nn.Linear(sizes.width, sizes.width)
        self.value = nn.Linear(sizes.width, sizes.width)
        self.output = nn.Linear(sizes.width, sizes.width)
        self.norm_mlp = nn.LayerNorm(sizes.width, eps=_LAYER_NORM_EPS)
        self.up = nn.Linear(sizes.width, sizes.mlp)
        self.down = nn.Linear(sizes.mlp, sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        """One layer on ``(n, patches, width)``."""
        normed = self.norm_attention(x)
        query, key, value = (
            layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        return x + self.down(gelu_tanh(self.up(self.norm_mlp(x))))
