"""Made-up rows for every layout, and what the torch network computes for them.

The rows follow from a seed, so that only the chunks have to be kept. Of each layout's rows one
fills it and starts free, the other does not fill it and is guided.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from takt.policies.interface import FloatArray, Network
from takt.policies.lerobot.checkpoint import FlowCheckpoint
from takt.policies.noise import noise_for
from takt.schema.row import Row, RowHeader
from takt.schema.spec import PolicySpec

__all__ = ["NUM_ROWS", "reference_chunks", "reference_rows"]

NUM_ROWS = 2
"""Rows of each layout."""

_SEED = 0


def reference_rows(spec: PolicySpec, checkpoint: FlowCheckpoint, layout: int) -> list[Row]:
    """The rows of one layout."""
    return [_row(spec, checkpoint, layout, number) for number in range(NUM_ROWS)]


def reference_chunks(
    network: Network, checkpoint: FlowCheckpoint, layouts: Sequence[int]
) -> FloatArray:
    """What a loaded network computes for the rows, each alone.

    Returns:
        ``(layouts, NUM_ROWS, horizon, model_action_dim)``.
    """
    spec = network.spec

    def alone(row: Row, layout: int) -> FloatArray:
        network.prefix([row], size=spec.prefix_sizes[0], layout=layout, kv_slots=[0])
        return network.denoise([row], size=spec.denoise_sizes[0], layout=layout, kv_slots=[0])[0]

    return np.stack(
        [
            np.stack([alone(row, layout) for row in reference_rows(spec, checkpoint, layout)])
            for layout in layouts
        ]
    )


def _row(spec: PolicySpec, checkpoint: FlowCheckpoint, layout: int, number: int) -> Row:
    shape, is_full = checkpoint.layouts[layout], number == 0

    def drawn(name: str, of: tuple[int, ...]) -> FloatArray:
        return noise_for(_SEED, name, layout * NUM_ROWS + number, of)

    tensors: dict[str, NDArray[Any]] = {
        tensor.name: drawn(tensor.name, tensor.shape).astype(tensor.dtype)
        for tensor in spec.slot_tensors
    }
    tensors["images"] = np.clip(tensors["images"] / 2, -1, 1)
    letters = np.abs(drawn("tokens", tensors["tokens"].shape)) * checkpoint.sizes.vocabulary
    tensors["tokens"] = letters.astype(np.int32) % checkpoint.sizes.vocabulary
    tensors["num_images"] = np.array(shape.images if is_full else 1, np.int32)
    tensors["num_tokens"] = np.array(shape.tokens if is_full else shape.tokens // 2 + 1, np.int32)
    weights = np.linspace(1, 0, spec.action.horizon, dtype=np.float32)
    tensors["prefix_weights"] = np.zeros_like(weights) if is_full else weights
    tensors["frozen_steps"] = np.array(0, np.int32)
    header = RowHeader(
        layout=layout,
        state_dim=spec.observation.state_dim,
        horizon=spec.action.horizon,
        action_dim=spec.action.action_dim,
    )
    return Row(header, tensors)
