# pyright: basic, reportMissingImports=false
# Torch's annotations are incomplete, and `make check` also runs where torch is not installed.
"""Gated transformer layers with grouped heads and rotary positions.

The layers hold parameters and small formulas; the order in which they are called, and what may
attend to what, is a family's own (:mod:`takt.policies.pi0.network`,
:mod:`takt.policies.smolvla.network`).

Shapes: ``B`` rows, ``S`` tokens, ``H`` query heads, ``K`` key/value heads, ``d`` their width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from takt.policies.lerobot.sizes import StackSizes

__all__ = [
    "Activation",
    "GatedLayer",
    "RmsNorm",
    "Rotation",
    "attend",
    "gelu_tanh",
    "linear",
    "rotate",
    "rotation",
]

Activation: TypeAlias = Callable[[Tensor], Tensor]
Rotation: TypeAlias = tuple[Tensor, Tensor]
"""Cosine and sine of each position's angles, ``(B or 1, 1, S, d / 2)``."""

_ROPE_THETA = 10000.0


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU in its tanh form."""
    return functional.gelu(x, approximate="tanh")


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """Apply a layer in the number format of its weights."""
    return layer(x.to(layer.weight.dtype))


def rotation(positions: Tensor, head_dim: int) -> Rotation:
    """Angles of ``positions`` ``(B or 1, S)``, in float32."""
    pairs = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32)
    frequencies = 1.0 / (_ROPE_THETA ** (pairs / head_dim))
    angles = positions.to(torch.float32)[:, None, :, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x: Tensor, by: Rotation) -> Tensor:
    """Rotate the two halves of each head of ``x`` ``(B, heads, S, d)``."""
    cos, sin = (part.to(x.dtype) for part in by)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def attend(query: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
    """Softmax attention of grouped heads, scaled by ``d ** -0.5``.

    The query heads that share a key head become further queries of it, so keys and values are never
    repeated in memory.

    Args:
        query: ``(B, H, S, d)``; head ``h`` looks at key head ``h // (H / K)``.
        keys: ``(B, K, N, d)``.
        values: ``(B, K, N, d)``.
        allowed: Which keys a query may see: bool, ``(B, S or 1, N)``.

    Returns:
        ``(B, S, H * d)``.
    """
    rows, heads, length, width = query.shape
    groups = heads // keys.shape[1]
    grouped = query.reshape(rows, keys.shape[1], groups * length, width)
    mask = allowed[:, None]
    if allowed.shape[1] != 1 and groups != 1:
        mask = allowed[:, None, None].expand(-1, 1, groups, -1, -1).flatten(2, 3)
    mixed = functional.scaled_dot_product_attention(
        grouped, keys.to(query.dtype), values.to(query.dtype), attn_mask=mask
    )
    return mixed.reshape(rows, heads, length, width).transpose(1, 2).reshape(rows, length, -1)


class RmsNorm(nn.Module):
    """Root-mean-square norm, computed in float32.

    Args:
        width: Length of the last axis.
        eps: Added to the mean of the squares.
        offset: Added to the stored weight: 1 where weights are stored as differences from one.
    """

    def __init__(self, width: int, *, eps: float, offset: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        """The norm of ``x``, in its number format."""
        wide = x.float()
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (normed * (self.offset + self.weight.float())).to(x.dtype)


class GatedLayer(nn.Module):
    """Attention and a gated MLP, each behind a norm and added to what came in.

    Args:
        sizes: Sizes of the stack.
        eps: Of the norms.
        offset: Of the norms.
        activation: Applied to the gate of the MLP.
        kv_width: Width of what keys and values are projected from; the stack's when None.
    """

    def __init__(
        self,
        sizes: StackSizes,
        *,
        eps: float,
        offset: float,
        activation: Activation,
        kv_width: int | None = None,
    ) -> None:
        super().__init__()
        width, kv_rows = sizes.width, sizes.kv_heads * sizes.head_dim
        kv_width = width if kv_width is None else kv_width
        self.head_dim = sizes.head_dim
        self.activation = activation
        self.norm_attention = RmsNorm(width, eps=eps, offset=offset)
        self.query = nn.Linear(width, sizes.heads * sizes.head_dim, bias=False)
        self.key = nn.Linear(kv_width, kv_rows, bias=False)
        self.value = nn.Linear(kv_width, kv_rows, bias=False)
        self.output = nn.Linear(sizes.heads * sizes.head_dim, width, bias=False)
        self.norm_mlp = RmsNorm(width, eps=eps, offset=offset)
        self.gate = nn.Linear(width, sizes.mlp, bias=False)
        self.up = nn.Linear(width, sizes.mlp, bias=False)
        self.down = nn.Linear(sizes.mlp, width, bias=False)

    def queries(self, normed: Tensor) -> Tensor:
        """Queries of normed tokens, ``(B, H, S, d)``, not rotated."""
        return self._split(linear(self.query, normed))

    def keys_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of ``source``, each ``(B, K, S, d)``, not rotated."""
        return self._split(linear(self.key, source)), self._split(linear(self.value, source))

    def project(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values made from another stack's, heads side by side."""
        joined_keys, joined_values = (x.transpose(1, 2).flatten(2) for x in (keys, values))
        return (
            self._split(linear(self.key, joined_keys)),
            self._split(linear(self.value, joined_values)),
        )

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Add the attention's output and the MLP to ``x``."""
        x = x + linear(self.output, attended)
        normed = self.norm_mlp(x)
        gated = self.activation(linear(self.gate, normed)) * linear(self.up, normed)
        return x + linear(self.down, gated)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
