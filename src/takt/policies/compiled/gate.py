"""Compares the engine with the reference, for every captured layout and batch size, at every load.

An engine that computes something else on this machine, in this version, at one batch size, would
move a robot wrongly and say nothing. What was exported is therefore run on rows whose chunks are
known before the model is called ready.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from takt.errors import ConfigError
from takt.policies.compiled.reference import NUM_ROWS, reference_rows
from takt.policies.interface import FloatArray, Network
from takt.policies.lerobot.checkpoint import FlowCheckpoint
from takt.schema.row import Row

__all__ = ["TOLERANCES", "ParityError", "check_parity"]

TOLERANCES = {"f32": 1e-4, "bf16": 5e-2}
"""Largest difference allowed by number format, as a share of the largest value (at least 1)."""


class ParityError(ConfigError):
    """The engine does not compute what the reference computes; the model does not get ready."""


def check_parity(
    network: Network, checkpoint: FlowCheckpoint, expected: FloatArray, *, precision: str
) -> float:
    """Run every captured size of both stages in every layout and compare the chunks.

    Args:
        network: The engine's, loaded, with as many cache slots as its largest batch has rows.
        checkpoint: What it was exported from.
        expected: The reference's chunks, ``(layouts, NUM_ROWS, horizon, model_action_dim)``.
        precision: Number format of the engine.

    Returns:
        The largest difference, in units of model space.

    Raises:
        ParityError: A chunk is off by more than the number format explains.
    """
    spec = network.spec
    action = spec.action
    wanted = (len(spec.layouts), NUM_ROWS, action.horizon, action.model_action_dim)
    if expected.shape != wanted:
        raise ParityError(f"{spec.name}: reference of shape {expected.shape}, expected {wanted}")
    worst = 0.0
    for layout, chunks in enumerate(expected):
        rows = reference_rows(spec, checkpoint, layout)
        allowed = TOLERANCES[precision] * max(1.0, float(np.abs(chunks).max()))
        for sizes in _pairs(spec.prefix_sizes, spec.denoise_sizes):
            off = float(np.abs(_chunks(network, rows, layout, sizes) - _tiled(chunks, sizes)).max())
            # Written so that NaN does not pass.
            if not off <= allowed:
                raise ParityError(
                    f"{spec.name}: the engine computes batches of {sizes.prefix} and"
                    f" {sizes.denoise} wrongly in the layout {spec.layouts[layout].name!r}: off by"
                    f" {off:.3g}, {precision} explains {allowed:.3g}; export the checkpoint anew"
                    " with takt export, or serve it with another precision or engine"
                )
            worst = max(worst, off)
    return worst


class _Sizes(NamedTuple):
    prefix: int
    denoise: int


def _pairs(prefix: tuple[int, ...], denoise: tuple[int, ...]) -> list[_Sizes]:
    """Pairs in which every size of either stage is once."""
    pairs = zip_longest(prefix, denoise)
    return [_Sizes(first or prefix[-1], second or denoise[-1]) for first, second in pairs]


def _tiled(chunks: FloatArray, sizes: _Sizes) -> FloatArray:
    return chunks[np.arange(max(sizes)) % NUM_ROWS]


def _chunks(network: Network, rows: list[Row], layout: int, sizes: _Sizes) -> FloatArray:
    """Chunks of the rows, one after another until both sizes are full."""
    places = range(max(sizes))

    def launches(size: int) -> list[tuple[list[Row], list[int]]]:
        parts = [places[start : start + size] for start in places[::size]]
        return [([rows[place % NUM_ROWS] for place in part], list(part)) for part in parts]

    for given, slots in launches(sizes.prefix):
        network.prefix(given, size=sizes.prefix, layout=layout, kv_slots=slots)
    return np.concatenate(
        [
            network.denoise(given, size=sizes.denoise, layout=layout, kv_slots=slots)
            for given, slots in launches(sizes.denoise)
        ]
    )
