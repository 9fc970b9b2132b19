# ruff: noqa: D102 - the methods are described in structure.Ops
"""The `mini` network in NumPy, in float32: slow, short, and what the served graphs must equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from takt.policies.mini.sizes import StemLayer
from takt.policies.mini.structure import Step

__all__ = ["Array", "NumpyOps"]

Array: TypeAlias = NDArray[np.float32]


class NumpyOps:
    """:class:`~takt.policies.mini.structure.Ops` over float32 arrays.

    Args:
        weights: Tensors by the names of :func:`~takt.policies.mini.sizes.tensor_shapes`.
    """

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self._weights = weights

    def tensor(self, name: str) -> Array:
        return self._weights[name][None]

    def constant(self, value: Array) -> Array:
        return value

    def pixels(self, images: Array) -> Array:
        scaled = images.astype(np.float32) * np.float32(1 / 127.5) - np.float32(1)
        return scaled.transpose(0, 3, 1, 2)

    def convolution(self, x: Array, name: str, layer: StemLayer) -> Array:
        pad, size = layer.padding, layer.kernel
        padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
        windows = windows[:, :, :: layer.stride, :: layer.stride]
        summed = np.einsum(
            "bchwij,ocij->bohw", windows, self._weights[f"{name}.weight"], optimize=True
        )
        return summed + self._weights[f"{name}.bias"][:, None, None]

    def as_tokens(self, x: Array) -> Array:
        return x.reshape(*x.shape[:2], -1).transpose(0, 2, 1)

    def embedding(self, ids: Array, name: str) -> Array:
        return self._weights[f"{name}.weight"][ids.astype(np.int64)]

    def linear(self, x: Array, name: str) -> Array:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))
        return scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]

    def gelu(self, x: Array) -> Array:
        inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
        return np.float32(0.5) * x * (np.float32(1) + np.tanh(inner))

    def add(self, a: Array, b: Array) -> Array:
        return a + b

    def multiply(self, a: Array, b: Array) -> Array:
        return a * b

    def expand_batch(self, x: Array, like: Array) -> Array:
        return np.repeat(x, like.shape[0], axis=0)

    def join_tokens(self, parts: Sequence[Array]) -> Array:
        return np.concatenate(parts, axis=1)

    def cut_tokens(self, x: Array, start: int, stop: int) -> Array:
        return x[:, start:stop]

    def token_of(self, x: Array) -> Array:
        return x[:, None]

    def stack_layers(self, parts: Sequence[Array]) -> Array:
        return np.stack(parts, axis=1)

    def layer_of(self, stacked: Array, index: int) -> Array:
        return stacked[:, index]

    def keys_and_values(self, x: Array, heads: int) -> tuple[Array, Array]:
        keys, values = np.split(x, 2, axis=-1)
        return _split_heads(keys, heads), _split_heads(values, heads)

    def attention(self, query: Array, keys: Sequence[Array], values: Sequence[Array]) -> Array:
        k, v = np.concatenate(keys, axis=2), np.concatenate(values, axis=2)
        q = _split_heads(query, k.shape[1])
        scores = (q @ k.transpose(0, 1, 3, 2)) * np.float32(q.shape[-1] ** -0.5)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ v
        return mixed.transpose(0, 2, 1, 3).reshape(query.shape)

    def iterate(
        self, step: Step[Array], x: Array, tables: Sequence[Array], fixed: Sequence[Array]
    ) -> Array:
        for index in range(len(tables[0])):
            x = step(self, x, [table[index : index + 1] for table in tables], fixed)
        return x


def _split_heads(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)
