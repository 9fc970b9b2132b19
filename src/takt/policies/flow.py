"""The inputs that every flow policy has per row: noise, and the chunk being executed.

They are always there, with a value that means "none", so that requests with and without real-time
chunking, and with different delays, share one batch and one compiled graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from takt.errors import ObservationError
from takt.policies.noise import noise_for
from takt.schema.row import RowRequest
from takt.schema.spec import FLOW_INPUTS, TensorSpec

__all__ = ["flow_tensors", "write_flow"]


def flow_tensors(horizon: int, model_action_dim: int) -> tuple[TensorSpec, ...]:
    """Specs of the flow inputs, in the order of :data:`~takt.schema.spec.FLOW_INPUTS`."""
    chunk = (horizon, model_action_dim)
    shapes = (chunk, chunk, (horizon,), ())
    dtypes = ("float32", "float32", "float32", "int32")
    return tuple(
        TensorSpec(name=name, shape=shape, dtype=dtype)
        for name, shape, dtype in zip(FLOW_INPUTS, shapes, dtypes, strict=True)
    )


def write_flow(slot: Mapping[str, NDArray[Any]], request: RowRequest) -> None:
    """Write the flow inputs of one request; neutral where it asks for no chunking.

    Raises:
        ObservationError: The previous chunk does not fit the policy, or was not translated.
    """
    if request.executing is not None:
        raise ObservationError(
            "leftover", expected="none: this policy takes no leftovers", received="one"
        )
    noise = slot["noise"]
    noise[...] = noise_for(request.seed, request.session, request.sequence, noise.shape)
    chunking = request.chunking
    if chunking is None:
        slot["previous_chunk"][...] = 0
        slot["prefix_weights"][...] = 0
        slot["frozen_steps"][...] = 0
        return
    horizon, width = noise.shape
    chunking.check(horizon, width)
    slot["previous_chunk"][...] = chunking.previous_chunk
    slot["prefix_weights"][...] = chunking.prefix_weights
    slot["frozen_steps"][...] = chunking.frozen_steps
