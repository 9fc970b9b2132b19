# pyright: basic, reportMissingImports=false
# Torch's annotations are incomplete, and `make check` also runs where torch is not installed.
"""What goes into and comes out of the stages of a flow policy, and the stack that fills the cache.

Every tensor has a shape that the launch's layout and batch size fix. Which tokens are real is data:
numbers per row, turned into masks on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from takt.policies.lerobot.config import FlowConfig
from takt.policies.lerobot.sizes import StackSizes
from takt.policies.networks.flow import FlowInputs, Trace, integrate, silent
from takt.policies.networks.transformer import (
    Activation,
    GatedLayer,
    RmsNorm,
    attend,
    rotate,
    rotation,
)

__all__ = [
    "FlowNetwork",
    "PrefixInputs",
    "PrefixResult",
    "Stack",
    "Suffix",
    "compacted",
    "denoise",
    "padded_mask",
    "token_mask",
]

Suffix: TypeAlias = Any
"""What all steps of a denoise launch share: a named tuple of tensors, each family's own."""


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

    @property
    def config(self) -> FlowConfig:
        """The checkpoint's configuration."""
        ...

    @property
    def times(self) -> Tensor:
        """Embedding of each step's instant, ``(num_steps, width)``."""
        ...

    def begin(self, prefix: PrefixResult, state: Tensor, horizon: int, trace: Trace) -> Suffix:
        """What every step of a denoise launch reads, computed once."""
        ...

    def velocity(self, x: Tensor, time: Tensor, suffix: Suffix, trace: Trace) -> Tensor:
        """Where the flow goes at ``x`` ``(B, horizon, model_action_dim)``.

        Args:
            x: The sample.
            time: Embedding of the instant, ``(width,)`` or ``(1, width)``.
            suffix: From :meth:`begin`.
            trace: Told of what goes into the expert and comes out.
        """
        ...


def denoise(
    network: FlowNetwork,
    prefix: PrefixResult,
    state: Tensor,
    flow: FlowInputs,
    *,
    max_guidance: float,
    trace: Trace = silent,
) -> Tensor:
    """The denoise stage of a batch, ``(B, horizon, model_action_dim)``."""
    suffix = network.begin(prefix, state, flow.noise.shape[1], trace)

    def velocity(x: Tensor, step: int) -> Tensor:
        return network.velocity(
            x, network.times[step], suffix, lambda name, tensor: trace(f"{name}.{step}", tensor)
        )

    return integrate(
        velocity,
        flow,
        num_steps=network.config.num_steps,
        max_guidance=max_guidance,
        trace=trace,
    )


def compacted(result: PrefixResult) -> PrefixResult:
    """The same prefix with each row's real tokens in front, in order."""
    order = torch.argsort((~result.real).to(torch.uint8), dim=1, stable=True)
    index = order[:, None, None, None, :, None].expand_as(result.kv)
    return PrefixResult(kv=result.kv.gather(4, index), real=result.real.gather(1, order))


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
