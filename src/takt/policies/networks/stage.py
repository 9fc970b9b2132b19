# pyright: basic, reportMissingImports=false
# Torch's annotations are incomplete, and `make check` also runs where torch is not installed.
"""What goes into and comes out of the stages of a flow policy, and the stack that fills the cache.

Every tensor has a shape that the launch's layout and batch size fix. Which tokens are real is data:
numbers per row, turned into masks on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from takt.policies.lerobot.sizes import StackSizes
from takt.policies.networks.flow import FlowInputs, Trace, silent
from takt.policies.networks.transformer import (
    Activation,
    GatedLayer,
    RmsNorm,
    attend,
    rotate,
    rotation,
)

__all__ = ["FlowNetwork", "PrefixInputs", "PrefixResult", "Stack", "padded_mask", "token_mask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixInputs:
    """A prefix batch of one layout with ``n`` images and ``t`` tokens."""

    images: Tensor
    """``(B, n, height, width, 3)``, in [-1, 1]."""
    num_images: Tensor
    """Images each row has, ``(B,)``."""
    tokens: Tensor
    """``(B, t)``."""
    num_tokens: Tensor
    """Tokens each row has, ``(B,)``."""
    state: Tensor
    """Padded, ``(B, max_state_dim)``; families that read it later leave it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixResult:
    """What a prefix leaves for the denoise stage."""

    kv: Tensor
    """Rotated keys and values, ``(B, layers, 2, K, P, d)``."""
    real: Tensor
    """Which of the ``P`` tokens are real, bool ``(B, P)``."""


class FlowNetwork(Protocol):
    """Both stages of a family."""

    def prefix(self, inputs: PrefixInputs, trace: Trace = silent) -> PrefixResult:
        """The prefix stage of a batch."""
        ...

    def image_tokens(self, images: Tensor) -> Tensor:
        """Tokens of images, before any factor."""
        ...

    def denoise(
        self,
        prefix: PrefixResult,
        state: Tensor,
        flow: FlowInputs,
        max_guidance: float,
        trace: Trace = silent,
    ) -> Tensor:
        """The denoise stage of a batch, ``(B, horizon, model_action_dim)``."""
        ...


def token_mask(numbers: Tensor, places: int, tokens: int = 1) -> Tensor:
    """Mask of ``places`` blocks of ``tokens`` tokens, of which each row has the first few."""
    block = torch.arange(places * tokens, device=numbers.device) // tokens
    return block[None, :] < numbers[:, None]


def padded_mask(real: Tensor, among: Tensor) -> Tensor:
    """What suffix tokens may see: the real prefix, and each other as ``among`` ``(B, S, S)`` says.

    Returns:
        Bool ``(B, S, P + S)``.
    """
    prefix = real[:, None, :].expand(-1, among.shape[1], -1)
    return torch.cat([prefix, among], dim=2)


class Stack(nn.Module):
    """A stack of gated layers with a last norm; with an embedding where it reads words.

    Args:
        sizes: Its sizes.
        eps: Of all norms.
        offset: Of all norms.
        activation: Of the MLPs.
        vocabulary: Rows of the embedding; 0: none.
        kv_widths: Per layer, what keys and values are projected from; the stack's width when None.
    """

    def __init__(
        self,
        sizes: StackSizes,
        *,
        eps: float,
        offset: float,
        activation: Activation,
        vocabulary: int = 0,
        kv_widths: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.sizes = sizes
        widths = (sizes.width,) * sizes.depth if kv_widths is None else kv_widths
        self.layers: Any = nn.ModuleList(
            GatedLayer(sizes, eps=eps, offset=offset, activation=activation, kv_width=width)
            for width in widths
        )
        self.norm = RmsNorm(sizes.width, eps=eps, offset=offset)
        if vocabulary:
            self.embedding = nn.Parameter(torch.empty(vocabulary, sizes.width))

    def prefill(self, x: Tensor, real: Tensor, allowed: Tensor, trace: Trace) -> PrefixResult:
        """Run all layers over a prefix and keep their keys and values.

        Args:
            x: Tokens, ``(B, P, width)``.
            real: Which are real, ``(B, P)``; the others take no position.
            allowed: What each may see, ``(B, P or 1, P)``.
            trace: Told of positions and the last hidden state. Without it the last layer stops at
                its keys and values, which is all the denoise stage reads.
        """
        positions = real.cumsum(1) - 1
        trace("real", real)
        trace("positions", positions)
        by = rotation(positions, self.sizes.head_dim)
        kept: list[Tensor] = []
        for layer in self.layers:
            normed = layer.norm_attention(x)
            key, value = layer.keys_values(normed)
            key = rotate(key, by)
            kept.append(torch.stack([key, value], dim=1))
            if layer is self.layers[-1] and trace is silent:
                break
            x = layer.finish(x, attend(rotate(layer.queries(normed), by), key, value, allowed))
        if trace is not silent:
            trace("hidden", self.norm(x))
        kv = torch.stack(kept, dim=1)
        trace("kv", kv)
        return PrefixResult(kv=kv, real=real)
