# pyright: basic, reportMissingImports=false
# Torch's annotations are incomplete, and `make check` also runs where torch is not installed.
"""The pi0 network: prefix and denoise stage.

Prefix: ``[image tokens ..., instruction]``, one block in which all real tokens see each other.
Suffix: ``[state, action 1 ... action T]``; the state sees the prefix and itself, actions see
the prefix, the state and each other.

Start reading at :meth:`Pi0Network.prefix` and :meth:`Pi0Network.velocity`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from takt.policies.lerobot.config import FlowConfig
from takt.policies.lerobot.sizes import StackSizes
from takt.policies.networks.flow import Trace, silent, time_table
from takt.policies.networks.stage import PrefixInputs, PrefixResult, Stack, padded_mask, token_mask
from takt.policies.networks.transformer import (
    attend,
    gelu_tanh,
    linear,
    rotate,
    rotation,
)
from takt.policies.networks.vision import VisionTower
from takt.policies.pi0.sizes import Pi0Sizes

__all__ = ["Pi0Network"]

_EPS = 1e-6


class _Suffix(NamedTuple):
    """What all steps of one denoise launch share."""

    first: Tensor
    """The state's token, ``(B, 1, width)``."""
    cos: Tensor
    """Of the rotary angles of the suffix."""
    sin: Tensor
    allowed: Tensor
    """What a suffix token may see of the prefix and of the suffix."""
    kv: Tensor
    """Keys and values of the prefix."""


class Pi0Network(nn.Module):
    """Both stages of pi0.

    Args:
        sizes: Its sizes.
        config: The checkpoint's configuration.
    """

    times: Tensor
    """Embedding of each step's instant."""

    def __init__(self, sizes: Pi0Sizes, config: FlowConfig) -> None:
        super().__init__()
        self.sizes = sizes
        self.config = config
        width, actions = sizes.expert.width, config.max_action_dim
        self.vision = VisionTower(sizes.vision, config.height, config.width, is_bucketed=False)
        self.projector = nn.Linear(sizes.vision.width, sizes.language.width)
        self.language = _stack(sizes.language, sizes.vocabulary)
        self.expert = _stack(sizes.expert)
        self.state_proj = nn.Linear(config.max_state_dim, width)
        self.action_in_proj = nn.Linear(actions, width)
        self.action_out_proj = nn.Linear(width, actions)
        self.action_time_mlp_in = nn.Linear(2 * width, width)
        self.action_time_mlp_out = nn.Linear(width, width)
        times = time_table(config.num_steps, width, config.min_period, config.max_period)
        self.register_buffer("times", times, persistent=False)

    def prefix(self, inputs: PrefixInputs, trace: Trace = silent) -> PrefixResult:
        """Keys and values of images and instruction."""
        images = self.image_tokens(inputs.images)
        trace("image_features", images)
        words = functional.embedding(inputs.tokens, self.language.embedding)
        words = words * math.sqrt(self.sizes.language.width)
        trace("lang_embs", words)
        x = torch.cat([images.flatten(1, 2).to(words.dtype), words], dim=1)
        trace("embs", x)
        real = torch.cat(
            [
                token_mask(inputs.num_images, inputs.images.shape[1], self.sizes.image_tokens),
                token_mask(inputs.num_tokens, inputs.tokens.shape[1]),
            ],
            dim=1,
        )
        # Padding queries may look at real tokens too: nobody reads them, and they stay finite.
        return self.language.prefill(x, real, real[:, None, :], trace)

    def image_tokens(self, images: Tensor) -> Tensor:
        """Tokens of ``(B, n, height, width, 3)`` images, ``(B, n, tokens, width)``."""
        tokens = linear(self.projector, self.vision(images.flatten(0, 1)))
        return tokens.unflatten(0, images.shape[:2])

    def begin(self, prefix: PrefixResult, state: Tensor, horizon: int, trace: Trace) -> _Suffix:
        """What every step of a denoise launch reads."""
        ordinal = torch.arange(horizon + 1, device=state.device)
        positions = prefix.real.sum(1, keepdim=True) + ordinal
        trace("positions", positions)
        cos, sin = rotation(positions, self.sizes.head_dim)
        among = (ordinal[None, :] <= 0) | (ordinal[:, None] > 0)
        allowed = padded_mask(prefix.real, among.expand(positions.shape[0], -1, -1))
        first = linear(self.state_proj, state)[:, None]
        return _Suffix(first=first, cos=cos, sin=sin, allowed=allowed, kv=prefix.kv)

    def velocity(self, x: Tensor, time: Tensor, suffix: _Suffix, trace: Trace) -> Tensor:
        """Where the flow goes; see :meth:`FlowNetwork.velocity`."""
        tokens = torch.cat([suffix.first, self._action_tokens(x, time)], dim=1)
        trace("embs", tokens)
        hidden = self._run_expert(tokens, suffix)
        trace("hidden", hidden)
        return linear(self.action_out_proj, hidden[:, 1:].float())

    def _action_tokens(self, x: Tensor, time: Tensor) -> Tensor:
        actions = linear(self.action_in_proj, x)
        joined = torch.cat([actions, time.expand_as(actions)], dim=-1)
        return linear(
            self.action_time_mlp_out, functional.silu(linear(self.action_time_mlp_in, joined))
        )

    def _run_expert(self, x: Tensor, suffix: _Suffix) -> Tensor:
        by = suffix.cos, suffix.sin
        for index, layer in enumerate(self.expert.layers):
            normed = layer.norm_attention(x)
            query = rotate(layer.queries(normed), by)
            key, value = layer.keys_values(normed)
            keys = torch.cat([suffix.kv[:, index, 0].to(key.dtype), rotate(key, by)], dim=2)
            values = torch.cat([suffix.kv[:, index, 1].to(value.dtype), value], dim=2)
            x = layer.finish(x, attend(query, keys, values, suffix.allowed))
        return self.expert.norm(x)


def _stack(sizes: StackSizes, vocabulary: int = 0) -> Stack:
    return Stack(sizes, eps=_EPS, offset=1.0, activation=gelu_tanh, vocabulary=vocabulary)
