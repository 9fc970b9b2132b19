"""Served tensors by their golden names and in their golden places.

A served prefix has another shape than LeRobot's: images are packed, masked cameras are left out,
the instruction has the length of a bucket. Every token is therefore found by what it stands for
(:class:`~takt.policies.lerobot.layouts.TokenKey`), and values are compared where a token is real.

Start reading at :meth:`GoldenView.error`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from takt.policies.guidance import guidance_of, step_times
from takt.policies.interface import FloatArray
from takt.policies.lerobot.checkpoint import FlowCheckpoint
from takt.policies.lerobot.golden import GoldenCase
from takt.policies.lerobot.layouts import FlowLayout, TokenKey
from takt.schema.row import Row

__all__ = ["GoldenView", "ServedCase", "tensor_error"]

_Array: TypeAlias = NDArray[Any]


class ServedCase(NamedTuple):
    """A case as it was served."""

    rows: list[Row]
    layout: FlowLayout
    prefix: dict[str, _Array]
    denoise: dict[str, _Array]
    chunk: FloatArray


class GoldenView:
    """Served tensors by their golden names and in their golden places."""

    def __init__(
        self,
        checkpoint: FlowCheckpoint,
        case: GoldenCase,
        served: ServedCase,
        image_tokens: Callable[[FloatArray], FloatArray],
    ) -> None:
        self._checkpoint = checkpoint
        self._case = case
        self._served = served
        self._image_tokens = image_tokens
        config, sizes = checkpoint.config, checkpoint.sizes
        self._present = len(case.cameras)
        missing = len(config.cameras) - self._present + config.empty_cameras
        keeps_all = not checkpoint.family.state_in_prefix
        self._empty = missing if keeps_all else min(missing, config.empty_cameras)
        self._served_keys = {
            key: place
            for place, key in enumerate(
                sizes.prefix_tokens(served.layout, config.empty_cameras, full=False)
            )
        }

    def error(self, name: str, golden: _Array) -> float | None:
        """How far ``golden`` is off; None where the name means nothing to us."""
        base, _, number = name.rpartition(".")
        if not number.isdecimal():
            base, number = name, "0"
        compare = _COMPARISONS.get(base)
        if compare is None:
            return None
        try:
            return compare(self, golden, int(number))
        except (KeyError, IndexError, ValueError):  # another layer, step or shape than ours
            return math.inf

    # Rows

    def state(self, golden: _Array, _: int) -> float:
        """The normalised state, padded or not."""
        states = np.stack([row.tensors["state"] for row in self._served.rows])
        return tensor_error(states[:, : golden.shape[-1]], golden)

    def tokens(self, golden: _Array, _: int) -> float:
        """Token ids, padded."""
        ids = np.stack([row.tensors["tokens"] for row in self._served.rows])
        return tensor_error(ids[:, : golden.shape[-1]], golden)

    def token_mask(self, golden: _Array, _: int) -> float:
        """Which tokens are real."""
        places = range(golden.shape[-1])
        mask = np.array([[place < count for place in places] for count in self._num_tokens()])
        return tensor_error(mask, golden)

    def image(self, golden: _Array, number: int) -> float:
        """An image as the tower sees it."""
        if number >= self._present:
            return tensor_error(np.full(golden.shape, -1, np.float32), golden)
        images = np.stack([row.tensors["images"][number] for row in self._served.rows])
        return tensor_error(images.transpose(0, 3, 1, 2), golden)

    def image_mask(self, golden: _Array, number: int) -> float:
        """Whether an image is a camera's."""
        return tensor_error(np.full(golden.shape, number < self._present), golden)

    # Prefix

    def image_features(self, golden: _Array, number: int) -> float:
        """Tokens of an image before any factor."""
        if number < self._present:
            return tensor_error(self._served.prefix["image_features"][:, number], golden)
        config = self._checkpoint.config
        blank = self._image_tokens(np.full((config.height, config.width, 3), -1, np.float32))
        return tensor_error(np.broadcast_to(blank, golden.shape), golden)

    def words(self, golden: _Array, _: int) -> float:
        """Embedded words, where they are real."""
        return max(
            tensor_error(self._served.prefix["lang_embs"][row, :count], golden[row, :count])
            for row, count in enumerate(self._num_tokens())
        )

    def pad_mask(self, golden: _Array, _: int) -> float:
        """Which prefix tokens are real."""
        return tensor_error(self._real(golden.shape[1]), golden)

    def starts(self, golden: _Array, _: int) -> float:
        """Where a block of attention starts: at a state in the prefix."""
        keys = self._keys(golden.shape[1])
        starts = np.array([key is not None and key.kind == "state" for key in keys])
        rows = np.tile(starts, (golden.shape[0], 1))
        return tensor_error(rows.astype(bool), golden.astype(bool))

    def prefix_positions(self, golden: _Array, _: int) -> float:
        """Positions, served where tokens are real, rebuilt from the mask elsewhere."""
        real = self._real(golden.shape[1])
        rebuilt = np.cumsum(real, axis=1) - 1
        return max(
            tensor_error(rebuilt, golden),
            self._placed(self._served.prefix["positions"], golden, axis=0),
        )

    def prefix_embs(self, golden: _Array, _: int) -> float:
        """The prefix before the first layer."""
        return self._placed(self._served.prefix["embs"], golden, axis=0)

    def prefix_hidden(self, golden: _Array, _: int) -> float:
        """The prefix after the last layer and norm."""
        return self._placed(self._served.prefix["hidden"], golden, axis=0)

    def keys(self, golden: _Array, number: int) -> float:
        """Keys of a layer."""
        return self._placed(self._served.prefix["kv"][:, number, 0], golden, axis=1)

    def values(self, golden: _Array, number: int) -> float:
        """Values of a layer."""
        return self._placed(self._served.prefix["kv"][:, number, 1], golden, axis=1)

    # Denoise

    def times(self, golden: _Array, _: int) -> float:
        """Time of each step."""
        return tensor_error(step_times(self._checkpoint.config.num_steps), golden)

    def guidance(self, golden: _Array, _: int) -> float:
        """Guidance weight of each step."""
        guided = self._case.guided
        most = self._checkpoint.config.max_guidance if guided is None else guided.max_guidance
        return tensor_error(guidance_of(self._checkpoint.config.num_steps, most), golden)

    def weights(self, golden: _Array, _: int) -> float:
        """Weight of each action step."""
        weights = np.stack([row.tensors["prefix_weights"] for row in self._served.rows])
        return tensor_error(np.broadcast_to(golden, weights.shape), weights)

    def suffix_positions(self, golden: _Array, _: int) -> float:
        """Positions of the suffix."""
        return tensor_error(self._served.denoise["positions"], golden)

    def suffix_embs(self, golden: _Array, number: int) -> float:
        """The suffix before the first layer of a step."""
        return tensor_error(self._served.denoise[f"embs.{number}"], golden)

    def suffix_hidden(self, golden: _Array, number: int) -> float:
        """The suffix after the last norm of a step."""
        return tensor_error(self._served.denoise[f"hidden.{number}"], golden)

    def velocity(self, golden: _Array, _: int) -> float:
        """What the network says at each step."""
        return tensor_error(self._steps("velocity"), golden)

    def velocity_guided(self, golden: _Array, _: int) -> float:
        """What is integrated at each step."""
        return tensor_error(self._steps("velocity_guided"), golden)

    def chunk(self, golden: _Array, _: int) -> float:
        """The model-space chunk, all columns or the robot's."""
        return tensor_error(self._served.chunk[..., : golden.shape[-1]], golden)

    # Places

    def _steps(self, name: str) -> _Array:
        steps = range(self._checkpoint.config.num_steps)
        return np.stack([self._served.denoise[f"{name}.{step}"] for step in steps])

    def _num_tokens(self) -> list[int]:
        return [int(row.tensors["num_tokens"]) for row in self._served.rows]

    def _keys(self, length: int) -> list[TokenKey | None]:
        """What each golden prefix token stands for; None: nothing, it fills up."""
        sizes = self._checkpoint.sizes
        bare = FlowLayout(self._present, 0)
        fixed = len(sizes.prefix_tokens(bare, self._empty, full=True))
        text = self._case.tensors.get("pre.tokens")
        words = length - fixed if text is None else text.shape[1]
        layout = FlowLayout(self._present, max(0, words))
        found: list[TokenKey | None] = [*sizes.prefix_tokens(layout, self._empty, full=True)]
        if len(found) > length:
            raise ValueError(f"a prefix of {length} tokens, expected at least {len(found)}")
        return found + [None] * (length - len(found))

    def _places(self, length: int) -> list[int]:
        """Served place of each golden prefix token; -1 where it is not served."""
        keys = self._keys(length)
        return [-1 if key is None else self._served_keys.get(key, -1) for key in keys]

    def _real(self, length: int) -> _Array:
        places = np.array(self._places(length))
        return np.where(places >= 0, self._served.prefix["real"][:, places], False)

    def _placed(self, served: _Array, golden: _Array, *, axis: int) -> float:
        """Compare per row along token ``axis`` where golden tokens are real."""
        length = golden.shape[axis + 1]
        places = np.array(self._places(length))
        worst = 0.0
        for row, real in enumerate(self._real(length)):
            there = np.flatnonzero(real)
            mine = np.take(served[row], places[there], axis=axis)
            worst = max(worst, tensor_error(mine, np.take(golden[row], there, axis=axis)))
        return worst


_COMPARISONS: Mapping[str, Callable[[GoldenView, _Array, int], float]] = {
    "pre.state": GoldenView.state,
    "model.state": GoldenView.state,
    "pre.tokens": GoldenView.tokens,
    "pre.token_mask": GoldenView.token_mask,
    "model.image": GoldenView.image,
    "model.image_mask": GoldenView.image_mask,
    "model.image_features": GoldenView.image_features,
    "model.lang_embs": GoldenView.words,
    "prefix.embs": GoldenView.prefix_embs,
    "prefix.pad_mask": GoldenView.pad_mask,
    "prefix.att_mask": GoldenView.starts,
    "prefix.position_ids": GoldenView.prefix_positions,
    "prefix.hidden": GoldenView.prefix_hidden,
    "prefix.key": GoldenView.keys,
    "prefix.value": GoldenView.values,
    "time": GoldenView.times,
    "suffix.embs": GoldenView.suffix_embs,
    "suffix.position_ids": GoldenView.suffix_positions,
    "suffix.hidden": GoldenView.suffix_hidden,
    "velocity": GoldenView.velocity,
    "velocity_guided": GoldenView.velocity_guided,
    "weights": GoldenView.weights,
    "guidance_weight": GoldenView.guidance,
    "x_final": GoldenView.chunk,
    "action_model": GoldenView.chunk,
}


def tensor_error(found: _Array, golden: _Array) -> float:
    """Largest absolute error, or the number of differing ids; infinite for another shape."""
    if found.shape != golden.shape:
        return math.inf
    if golden.size == 0:
        return 0.0
    if golden.dtype.kind in "biu":
        return float(np.count_nonzero(found != golden))
    return float(np.abs(found.astype(np.float64) - golden).max())
