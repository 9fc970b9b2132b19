# pyright: basic, reportMissingImports=false
# Torch's annotations are incomplete, and `make check` also runs where torch is not installed.
"""The SmolVLA network: prefix and denoise stage.

Prefix: ``[image blocks ..., special tokens of empty cameras, instruction, state]``. The state sees
everything, nothing sees the state.
Suffix: ``[action 1 ... action T]``. In some layers of the expert an action sees the prefix and the
actions before it, in the others the prefix alone, through projections of the cached keys and
values.

Start reading at :meth:`SmolvlaNetwork.prefix` and :meth:`SmolvlaNetwork.velocity`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from takt.policies.lerobot.config import FlowConfig
from takt.policies.networks.flow import Trace, silent, time_table
from takt.policies.networks.stage import PrefixInputs, PrefixResult, Stack, padded_mask, token_mask
from takt.policies.networks.transformer import attend, linear, rotate, rotation
from takt.policies.networks.vision import VisionTower
from takt.policies.smolvla.sizes import SmolvlaSizes

__all__ = ["SmolvlaNetwork"]

_EPS = 1e-5


class _Suffix(NamedTuple):
    """What all steps of one denoise launch share."""

    kv: Tensor
    """Keys and values that each layer reads of the prefix, ``(B, layers, 2, K, P, d)``."""
    cos: Tensor
    """Of the rotary angles at positions that continue after the prefix."""
    sin: Tensor
    cos_restarted: Tensor
    """Of the rotary angles at positions from 0."""
    sin_restarted: Tensor
    allowed: Tensor
    """What an action may see of the prefix and of the actions."""
    real: Tensor
    """What it may see of the prefix alone, ``(B, 1, P)``."""


class SmolvlaNetwork(nn.Module):
    """Both stages of SmolVLA.

    Args:
        sizes: Its sizes.
        config: The checkpoint's configuration.
        special_ids: The two tokens in front of an image and the one behind it; empty where there
            are none.
    """

    times: Tensor
    """Embedding of each step's instant."""
    special_ids: Tensor
    """Tokens around an image."""

    def __init__(
        self, sizes: SmolvlaSizes, config: FlowConfig, special_ids: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        self.sizes = sizes
        self.config = config
        width, actions = sizes.expert.width, config.max_action_dim
        cells = sizes.vision.width * sizes.shuffle**2
        kv_rows = sizes.kv_heads * sizes.head_dim
        self.vision = VisionTower(sizes.vision, config.height, config.width, is_bucketed=True)
        self.connector = nn.Linear(cells, sizes.language.width, bias=False)
        self.language = Stack(
            sizes.language,
            eps=_EPS,
            offset=0.0,
            activation=functional.silu,
            vocabulary=sizes.vocabulary,
        )
        self.expert = Stack(
            sizes.expert,
            eps=_EPS,
            offset=0.0,
            activation=functional.silu,
            kv_widths=tuple(width if own else kv_rows for own in sizes.self_attention),
        )
        self.state_proj = nn.Linear(config.max_state_dim, sizes.language.width)
        self.action_in_proj = nn.Linear(actions, width)
        self.action_out_proj = nn.Linear(width, actions)
        self.action_time_mlp_in = nn.Linear(2 * width, width)
        self.action_time_mlp_out = nn.Linear(width, width)
        times = time_table(config.num_steps, width, config.min_period, config.max_period)
        self.register_buffer("times", times, persistent=False)
        with torch.device("cpu"):
            ids = torch.tensor(special_ids, dtype=torch.int64)
        self.register_buffer("special_ids", ids, persistent=False)

    def prefix(self, inputs: PrefixInputs, trace: Trace = silent) -> PrefixResult:
        """Keys and values of images, instruction and state."""
        factor = math.sqrt(self.sizes.language.width)
        images = self.image_tokens(inputs.images)
        trace("image_features", images)
        words = functional.embedding(inputs.tokens, self.language.embedding) * factor
        trace("lang_embs", words)
        state = linear(self.state_proj, inputs.state)[:, None]
        blocks = self._with_specials(images * factor)
        x = torch.cat([part.to(words.dtype) for part in (*blocks, words, state)], dim=1)
        trace("embs", x)
        real = self._real(inputs)
        return self.language.prefill(x, real, _all_but_state(real), trace)

    def image_tokens(self, images: Tensor) -> Tensor:
        """Tokens of ``(B, n, height, width, 3)`` images, ``(B, n, tokens, width)``."""
        patches = self.vision(images.flatten(0, 1))
        tokens = linear(self.connector, self._shuffle(patches))
        return tokens.unflatten(0, images.shape[:2])

    def begin(self, prefix: PrefixResult, state: Tensor, horizon: int, trace: Trace) -> _Suffix:
        """What every step of a denoise launch reads."""
        del state  # it is in the prefix
        ordinal = torch.arange(horizon, device=prefix.real.device)
        positions = prefix.real.sum(1, keepdim=True) + ordinal
        trace("positions", positions)
        causal = (ordinal[None, :] <= ordinal[:, None]).expand(positions.shape[0], -1, -1)
        cos, sin = rotation(positions, self.sizes.head_dim)
        cos_restarted, sin_restarted = rotation(ordinal[None], self.sizes.head_dim)
        return _Suffix(
            kv=self._projected(prefix.kv),
            cos=cos,
            sin=sin,
            cos_restarted=cos_restarted,
            sin_restarted=sin_restarted,
            allowed=padded_mask(prefix.real, causal),
            real=prefix.real[:, None, :],
        )

    def velocity(self, x: Tensor, time: Tensor, suffix: _Suffix, trace: Trace) -> Tensor:
        """Where the flow goes; see :meth:`FlowNetwork.velocity`."""
        tokens = self._action_tokens(x, time)
        trace("embs", tokens)
        hidden = self._run_expert(tokens, suffix)
        trace("hidden", hidden)
        return linear(self.action_out_proj, hidden.float())

    # Prefix

    def _shuffle(self, patches: Tensor) -> Tensor:
        """Join ``r`` x ``r`` neighbouring patches, row by row inside a cell."""
        r, patch = self.sizes.shuffle, self.sizes.vision.patch
        rows, columns = self.config.height // patch, self.config.width // patch
        cells = patches.unflatten(1, (rows // r, r, columns // r, r))
        return cells.permute(0, 1, 3, 2, 4, 5).flatten(3).flatten(1, 2)

    def _with_specials(self, images: Tensor) -> tuple[Tensor, ...]:
        rows, places = images.shape[:2]
        if not self.sizes.has_specials:
            return (images.flatten(1, 2),)
        specials = functional.embedding(self.special_ids, self.language.embedding)
        around = specials.expand(rows, places, -1, -1)
        front, behind = around[:, :, :-1], around[:, :, -1:]
        blocks = torch.cat([front, images.to(specials.dtype), behind], dim=2).flatten(1, 2)
        return blocks, specials.repeat(self.sizes.num_empty, 1).expand(rows, -1, -1)

    def _real(self, inputs: PrefixInputs) -> Tensor:
        rows, places = inputs.images.shape[:2]
        always = torch.ones(rows, 1, dtype=torch.bool, device=inputs.images.device)
        return torch.cat(
            [
                token_mask(inputs.num_images, places, self.sizes.image_block),
                always.expand(-1, self.sizes.empty_block),
                token_mask(inputs.num_tokens, inputs.tokens.shape[1]),
                always,
            ],
            dim=1,
        )

    # Denoise

    def _projected(self, kv: Tensor) -> Tensor:
        layers = [
            kv[:, index]
            if own
            else torch.stack(layer.project(kv[:, index, 0], kv[:, index, 1]), dim=1)
            for index, (layer, own) in enumerate(
                zip(self.expert.layers, self.sizes.self_attention, strict=True)
            )
        ]
        return torch.stack(layers, dim=1)

    def _action_tokens(self, x: Tensor, time: Tensor) -> Tensor:
        actions = linear(self.action_in_proj, x)
        joined = torch.cat([actions, time.expand_as(actions)], dim=-1)
        return linear(
            self.action_time_mlp_out, functional.silu(linear(self.action_time_mlp_in, joined))
        )

    def _run_expert(self, x: Tensor, suffix: _Suffix) -> Tensor:
        after, restarted = (
            (suffix.cos, suffix.sin),
            (suffix.cos_restarted, suffix.sin_restarted),
        )
        for index, (layer, own) in enumerate(
            zip(self.expert.layers, self.sizes.self_attention, strict=True)
        ):
            normed = layer.norm_attention(x)
            query = layer.queries(normed)
            keys, values = suffix.kv[:, index, 0], suffix.kv[:, index, 1]
            if own:
                key, value = layer.keys_values(normed)
                keys = torch.cat([keys.to(key.dtype), rotate(key, after)], dim=2)
                values = torch.cat([values.to(value.dtype), value], dim=2)
                mixed = attend(rotate(query, after), keys, values, suffix.allowed)
            else:
                mixed = attend(rotate(query, restarted), keys, values, suffix.real)
            x = layer.finish(x, mixed)
        return self.expert.norm(x)


def _all_but_state(real: Tensor) -> Tensor:
    """What prefix tokens may see: all real ones; the state, which is the last, only itself."""
    ordinal = torch.arange(real.shape[1], device=real.device)
    last = real.shape[1] - 1
    return real[:, None, :] & ((ordinal[None, :] < last) | (ordinal[:, None] == last))
