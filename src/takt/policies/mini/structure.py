"""The `mini` network, written once for every library that runs it.

:func:`prefix` and :func:`denoise` say which layer follows which; an :class:`Ops` says what a layer
is. NumPy (:mod:`takt.policies.mini.reference`) and OpenVINO (:mod:`takt.policies.mini.graphs`) are
two of them; a trainer brings a third. So the served graph and the trained one cannot differ in
structure, and a parity test has only the operations to compare.

Flow time runs from 1 (noise) to 0 (actions): ``x_t = t * noise + (1 - t) * actions``, the network
predicts ``noise - actions``, and one Euler step is ``x - velocity / num_steps``.

Start reading at :func:`denoise`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from takt.policies.mini.sizes import STEM, MiniSizes, StemLayer

__all__ = [
    "MAX_PERIOD",
    "MIN_PERIOD",
    "Ops",
    "Step",
    "denoise",
    "prefix",
    "time_features",
    "time_vectors",
    "velocity",
]

T = TypeVar("T")
MIN_PERIOD = 4e-3
MAX_PERIOD = 4.0


class Ops(Protocol[T]):
    """The operations of one library, over weights it looks up by name.

    ``b`` is the batch, ``t`` tokens, ``w`` a width, ``h`` heads, ``d`` the width of one head.
    """

    def tensor(self, name: str) -> T:
        """The weight ``name`` itself, with a batch axis of length 1 in front."""
        ...

    def constant(self, value: NDArray[np.float32]) -> T:
        """A number or an array as a value of this library."""
        ...

    def pixels(self, images: T) -> T:
        """``(b, height, width, 3)`` of 0..255 to ``(b, 3, height, width)`` of -1..1."""
        ...

    def convolution(self, x: T, name: str, layer: StemLayer) -> T:
        """2-D convolution with bias, ``(b, channels, height, width)``."""
        ...

    def as_tokens(self, x: T) -> T:
        """``(b, channels, height, width)`` to ``(b, height * width, channels)``, row by row."""
        ...

    def embedding(self, ids: T, name: str) -> T:
        """``(b, t)`` of row numbers to ``(b, t, w)``."""
        ...

    def linear(self, x: T, name: str) -> T:
        """``x @ weight.T + bias`` over the last axis."""
        ...

    def norm(self, x: T, name: str) -> T:
        """Layer normalisation over the last axis, epsilon 1e-5, with scale and bias."""
        ...

    def gelu(self, x: T) -> T:
        """GELU in its tanh form."""
        ...

    def add(self, a: T, b: T) -> T:
        """Sum, broadcast."""
        ...

    def multiply(self, a: T, b: T) -> T:
        """Product, broadcast."""
        ...

    def expand_batch(self, x: T, like: T) -> T:
        """Repeat ``x`` of batch 1 to the batch of ``like``."""
        ...

    def join_tokens(self, parts: Sequence[T]) -> T:
        """Concatenate along the tokens, ``(b, t, w)``."""
        ...

    def cut_tokens(self, x: T, start: int, stop: int) -> T:
        """Tokens ``start`` to ``stop``, ``(b, t, w)``."""
        ...

    def token_of(self, x: T) -> T:
        """``(b, w)`` to ``(b, 1, w)``."""
        ...

    def stack_layers(self, parts: Sequence[T]) -> T:
        """``(b, t, w)`` of each layer to ``(b, layers, t, w)``."""
        ...

    def layer_of(self, stacked: T, index: int) -> T:
        """One layer of what :meth:`stack_layers` made."""
        ...

    def keys_and_values(self, x: T, heads: int) -> tuple[T, T]:
        """``(b, t, 2 * h * d)``, keys first, to keys and values of ``(b, h, t, d)`` each."""
        ...

    def attention(self, query: T, keys: Sequence[T], values: Sequence[T]) -> T:
        """Full softmax attention.

        Args:
            query: ``(b, t, h * d)``.
            keys: Parts of the keys, ``(b, h, t_i, d)``, joined along the tokens.
            values: The parts of the values that belong to them.

        Returns:
            ``(b, t, h * d)``.
        """
        ...

    def iterate(self, step: Step[T], x: T, tables: Sequence[T], fixed: Sequence[T]) -> T:
        """Run ``x = step(ops, x, rows, fixed)`` once per row of the tables.

        Args:
            step: Reads nothing but its arguments.
            x: First value.
            tables: Values whose first axis is the step; a step gets rows with that axis at 1.
            fixed: Values that every step reads.

        Returns:
            ``x`` after the last step.
        """
        ...


Step: TypeAlias = Callable[[Ops[T], T, Sequence[T], Sequence[T]], T]
"""One step of a loop: library, value, rows of the tables, fixed values."""


def prefix(ops: Ops[T], sizes: MiniSizes, images: T, words: T) -> T:
    """Look at the image and read the instruction.

    Args:
        ops: The library.
        sizes: Sizes of the network.
        images: ``(b, image_size, image_size, 3)``, 0..255.
        words: ``(b, num_words)`` rows of the word table.

    Returns:
        Keys and values of every layer, ``(b, layers, prefix tokens, 2 * attention width)``.
    """
    x = _prefix_tokens(ops, images, words)
    caches: list[T] = []
    for index in range(sizes.num_layers):
        name = f"prefix.layers.{index}"
        normed = ops.norm(x, f"{name}.attention.norm")
        cache = ops.linear(normed, f"{name}.attention.key_value")
        caches.append(cache)
        if index < sizes.num_layers - 1:
            x = _attend(ops, x, normed, [ops.keys_and_values(cache, sizes.num_heads)], name)
            x = _mlp(ops, x, name)
    return ops.stack_layers(caches)


def denoise(
    ops: Ops[T],
    sizes: MiniSizes,
    num_steps: int,
    *,
    kv: T,
    state: T,
    noise: T,
    previous: T,
    hold: T,
) -> T:
    """Turn noise into actions in ``num_steps`` Euler steps.

    Before each step, and after the last, actions are drawn towards the previous chunk by ``hold``:
    where it is 1 the result equals ``previous`` exactly, where it is 0 nothing happens.

    Args:
        ops: The library.
        sizes: Sizes of the network.
        num_steps: Euler steps.
        kv: What :func:`prefix` returned.
        state: ``(b, state_dim)``, normalised proprioception.
        noise: ``(b, horizon, action_dim)``.
        previous: ``(b, horizon, action_dim)``, the chunk being executed, shifted to now.
        hold: ``(b, horizon, 1)``, from 0 (free) to 1 (frozen).

    Returns:
        Actions in model space, ``(b, horizon, action_dim)``.
    """
    pairs = [
        ops.keys_and_values(ops.layer_of(kv, index), sizes.num_heads)
        for index in range(sizes.num_layers)
    ]

    def step(inner: Ops[T], x: T, rows: Sequence[T], fixed: Sequence[T]) -> T:
        time, vector = rows
        state, noise, previous, hold, *flat = fixed
        x = _hold(inner, x, _noised(inner, previous, noise, time), hold)
        caches = list(zip(flat[::2], flat[1::2], strict=True))
        slope = velocity(inner, sizes, caches, state, x=x, time_vector=vector)
        return inner.add(x, inner.multiply(slope, _scalar(inner, -1.0 / num_steps)))

    times = (1.0 - np.arange(num_steps) / num_steps).astype(np.float32)
    tables = [ops.constant(times[:, None, None]), time_vectors(ops, sizes, times)]
    fixed = [state, noise, previous, hold, *(part for pair in pairs for part in pair)]
    return _hold(ops, ops.iterate(step, noise, tables, fixed), previous, hold)


def velocity(
    ops: Ops[T],
    sizes: MiniSizes,
    caches: Sequence[tuple[T, T]],
    state: T,
    *,
    x: T,
    time_vector: T,
) -> T:
    """Predict ``noise - actions`` for noisy actions ``x`` at one flow time.

    Args:
        ops: The library.
        sizes: Sizes of the network.
        caches: Keys and values of each prefix layer, ``(b, h, t, d)``.
        state: ``(b, state_dim)``.
        x: ``(b, horizon, action_dim)``.
        time_vector: One row of :func:`time_vectors`.

    Returns:
        ``(b, horizon, action_dim)``.
    """
    # The state's token is made anew in each step. It would be the same each time, but OpenVINO's
    # loop at batch 1 lets a step overwrite a token that comes from outside.
    state_token = ops.token_of(ops.linear(state, "denoise.state"))
    actions = ops.add(ops.linear(x, "denoise.action_in"), time_vector)
    tokens = ops.join_tokens([state_token, actions])
    tokens = ops.add(tokens, ops.tensor("denoise.position"))
    for index, cache in enumerate(caches):
        name = f"denoise.layers.{index}"
        normed = ops.norm(tokens, f"{name}.attention.norm")
        projected = ops.linear(normed, f"{name}.attention.key_value")
        own = ops.keys_and_values(projected, sizes.num_heads)
        tokens = _attend(ops, tokens, normed, [cache, own], name)
        tokens = _mlp(ops, tokens, name)
    actions = ops.cut_tokens(tokens, 1, sizes.num_denoise_tokens)
    return ops.linear(ops.norm(actions, "denoise.norm"), "denoise.action_out")


def time_vectors(ops: Ops[T], sizes: MiniSizes, times: NDArray[np.float32]) -> T:
    """What the denoise network adds to its actions at each flow time, ``(steps, 1, width)``."""
    features = ops.constant(time_features(times, sizes.denoise_width))
    return ops.linear(ops.gelu(ops.linear(features, "denoise.time.0")), "denoise.time.1")


def time_features(times: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Sines and cosines of flow times, shape ``(steps, 1, width)``; periods from 0.004 to 4."""
    periods = MIN_PERIOD * (MAX_PERIOD / MIN_PERIOD) ** np.linspace(0.0, 1.0, width // 2)
    angles = 2.0 * math.pi * times[:, None, None] / periods
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1).astype(np.float32)


def _prefix_tokens(ops: Ops[T], images: T, words: T) -> T:
    x = ops.pixels(images)
    for index, layer in enumerate(STEM):
        if index:
            x = ops.gelu(x)
        x = ops.convolution(x, f"prefix.stem.{index}", layer)
    seen = ops.as_tokens(x)
    read = ops.embedding(words, "prefix.words")
    readout = ops.expand_batch(ops.tensor("prefix.readout"), read)
    return ops.add(ops.join_tokens([seen, read, readout]), ops.tensor("prefix.position"))


def _attend(ops: Ops[T], x: T, normed: T, pairs: Sequence[tuple[T, T]], name: str) -> T:
    query = ops.linear(normed, f"{name}.attention.query")
    mixed = ops.attention(query, [keys for keys, _ in pairs], [values for _, values in pairs])
    return ops.add(x, ops.linear(mixed, f"{name}.attention.output"))


def _mlp(ops: Ops[T], x: T, name: str) -> T:
    hidden = ops.gelu(ops.linear(ops.norm(x, f"{name}.mlp.norm"), f"{name}.mlp.up"))
    return ops.add(x, ops.linear(hidden, f"{name}.mlp.down"))


def _noised(ops: Ops[T], actions: T, noise: T, time: T) -> T:
    return ops.add(ops.multiply(noise, time), ops.multiply(actions, _rest(ops, time)))


def _hold(ops: Ops[T], x: T, target: T, hold: T) -> T:
    # x * (1 - hold) + target * hold, not x + hold * (target - x): exact at both ends.
    return ops.add(ops.multiply(x, _rest(ops, hold)), ops.multiply(target, hold))


def _rest(ops: Ops[T], share: T) -> T:
    return ops.add(ops.multiply(share, _scalar(ops, -1.0)), _scalar(ops, 1.0))


def _scalar(ops: Ops[T], value: float) -> T:
    return ops.constant(np.full((1, 1, 1), value, np.float32))
