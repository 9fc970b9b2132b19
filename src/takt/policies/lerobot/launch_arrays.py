"""Input arrays of launches: taken once, written row by row, seen in the shape of each launch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from takt.core.request import Stage
from takt.errors import InvariantError
from takt.policies.lerobot.layouts import FlowLayout
from takt.schema.row import Row
from takt.schema.spec import PolicySpec, TensorSpec

__all__ = ["LaunchArrays"]

_Views: TypeAlias = dict[str, NDArray[Any]]


class LaunchArrays:
    """The arrays of one policy, for its largest launch of each stage.

    Args:
        spec: The policy's card.
        layouts: Its layouts, in the card's order.
    """

    def __init__(self, spec: PolicySpec, layouts: Sequence[FlowLayout]) -> None:
        self._spec = spec
        self._layouts = layouts
        self.buffers: Mapping[Stage, Mapping[str, NDArray[Any]]] = {
            Stage.PREFIX: _taken(spec.prefix_inputs, spec.prefix_sizes),
            Stage.DENOISE: _taken(spec.denoise_inputs, spec.denoise_sizes),
        }
        """Array of each input by stage and name."""

    def prefix(self, size: int, layout: int) -> _Views:
        """The prefix inputs in the shapes of a launch, contiguous."""
        shape = self._layouts[layout]
        views = {name: array[:size] for name, array in self.buffers[Stage.PREFIX].items()}
        views["images"] = _front(self.buffers[Stage.PREFIX]["images"], (size, shape.images))
        views["tokens"] = _front(self.buffers[Stage.PREFIX]["tokens"], (size, shape.tokens))
        return views

    def denoise(self, size: int) -> _Views:
        """The denoise inputs in the shapes of a launch."""
        return {name: array[:size] for name, array in self.buffers[Stage.DENOISE].items()}

    def write_prefix(self, rows: Sequence[Row], size: int, layout: int) -> _Views:
        """Copy rows in; places past them keep what an earlier launch left.

        Raises:
            InvariantError: The launch was not captured.
        """
        self._check(Stage.PREFIX, rows, size)
        views = self.prefix(size, layout)
        tokens = views["tokens"].shape[1]
        for place, row in enumerate(rows):
            used = int(row.tensors["num_images"])
            views["images"][place, :used] = row.tensors["images"][:used]
            views["tokens"][place] = row.tensors["tokens"][:tokens]
            for name in views.keys() - {"images", "tokens"}:
                views[name][place] = row.tensors[name]
        return views

    def write_denoise(self, rows: Sequence[Row], size: int) -> _Views:
        """Copy rows in; see :meth:`write_prefix`."""
        self._check(Stage.DENOISE, rows, size)
        views = self.denoise(size)
        for name, array in views.items():
            for place, row in enumerate(rows):
                array[place] = row.tensors[name]
        return views

    def _check(self, stage: Stage, rows: Sequence[Row], size: int) -> None:
        sizes = self._spec.prefix_sizes if stage is Stage.PREFIX else self._spec.denoise_sizes
        if size not in sizes or not 1 <= len(rows) <= size:
            raise InvariantError(f"{stage.name} launch of {len(rows)} rows at size {size}")


def _taken(tensors: Sequence[TensorSpec], sizes: Sequence[int]) -> _Views:
    return {tensor.name: np.zeros((max(sizes), *tensor.shape), tensor.dtype) for tensor in tensors}


def _front(array: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """The first elements of ``array`` as ``shape`` with its last axes."""
    full = (*shape, *array.shape[2:])
    return array.reshape(-1)[: math.prod(full)].reshape(full)
