# ruff: noqa: D102 - the methods are described in structure.Ops
"""The `mini` network in PyTorch: the operations of ``structure.Ops`` over trainable tensors."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from takt.policies.mini.sizes import MiniSizes, StemLayer, tensor_shapes
from takt.policies.mini.structure import Step

POSITION_STD = 0.02


class TorchOps:
    """:class:`takt.policies.mini.structure.Ops`; methods are described there.

    Args:
        weights: Tensors by the names of ``tensor_shapes``.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights

    def _pair(self, name: str) -> tuple[Tensor, Tensor]:
        return self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]

    def tensor(self, name: str) -> Tensor:
        return self._weights[name][None]

    def constant(self, value: np.ndarray) -> Tensor:
        return torch.from_numpy(value)

    def pixels(self, images: Tensor) -> Tensor:
        return (images.float() * (1 / 127.5) - 1).permute(0, 3, 1, 2)

    def convolution(self, x: Tensor, name: str, layer: StemLayer) -> Tensor:
        return functional.conv2d(x, *self._pair(name), stride=layer.stride, padding=layer.padding)

    def as_tokens(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)

    def embedding(self, ids: Tensor, name: str) -> Tensor:
        return functional.embedding(ids.long(), self._weights[f"{name}.weight"])

    def linear(self, x: Tensor, name: str) -> Tensor:
        return functional.linear(x, *self._pair(name))

    def norm(self, x: Tensor, name: str) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], *self._pair(name), eps=1e-5)

    def gelu(self, x: Tensor) -> Tensor:
        return functional.gelu(x, approximate="tanh")

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        return a * b

    def expand_batch(self, x: Tensor, like: Tensor) -> Tensor:
        return x.expand(like.shape[0], -1, -1)

    def join_tokens(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([part.float() for part in parts], dim=1)

    def cut_tokens(self, x: Tensor, start: int, stop: int) -> Tensor:
        return x[:, start:stop]

    def token_of(self, x: Tensor) -> Tensor:
        return x[:, None]

    def stack_layers(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(parts), dim=1)

    def layer_of(self, stacked: Tensor, index: int) -> Tensor:
        return stacked[:, index]

    def keys_and_values(self, x: Tensor, heads: int) -> tuple[Tensor, Tensor]:
        keys, values = x.chunk(2, dim=-1)
        return _split_heads(keys, heads), _split_heads(values, heads)

    def attention(self, query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
        k, v = torch.cat(list(keys), dim=2), torch.cat(list(values), dim=2)
        q = _split_heads(query, k.shape[1])
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return mixed.transpose(1, 2).flatten(2)

    def iterate(
        self, step: Step, x: Tensor, tables: Sequence[Tensor], fixed: Sequence[Tensor]
    ) -> Tensor:
        for index in range(len(tables[0])):
            x = step(self, x, [table[index : index + 1] for table in tables], fixed)
        return x


def new_weights(sizes: MiniSizes, seed: int) -> dict[str, Tensor]:
    """Weights to start from: variance 1 / inputs, norms of one, biases of zero."""
    weights: dict[str, Tensor] = {}
    for number, (name, shape) in enumerate(tensor_shapes(sizes).items()):
        rng = np.random.default_rng([seed, number])
        if name.endswith("norm.weight"):
            value = np.ones(shape)
        elif name.endswith(".bias"):
            value = np.zeros(shape)
        elif name.endswith("position"):
            value = rng.standard_normal(shape) * POSITION_STD
        else:
            value = rng.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))
        weights[name] = torch.from_numpy(value.astype(np.float32)).requires_grad_()
    return weights


def _split_heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(2, (heads, -1)).transpose(1, 2)
