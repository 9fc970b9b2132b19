"""Compares every compiled program with the NumPy reference before it may serve.

An engine that computes something else on this machine, in this version, at one batch size, would
move a robot wrongly and say nothing. Two made-up rows per program show it in well under a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from takt.core.request import Stage
from takt.errors import ConfigError
from takt.policies.interface import FloatArray
from takt.policies.mini import structure
from takt.policies.mini.reference import NumpyOps
from takt.policies.mini.sizes import MiniSizes

__all__ = ["NUM_ROWS", "SEED", "TOLERANCES", "Program", "check_programs"]

TOLERANCES = {"f32": 1e-3, "bf16": 0.1}
"""Largest difference allowed by number format, as a share of the largest value (at least 1)."""

NUM_ROWS = 2
SEED = 0


class Program(Protocol):
    """A compiled graph of one stage and batch size."""

    @property
    def inputs(self) -> Mapping[str, NDArray[Any]]:
        """Input arrays by name, batch axis first."""
        ...

    @property
    def output(self) -> FloatArray:
        """Result of the last run."""
        ...

    def run(self) -> None:
        """Compute ``output`` from ``inputs``."""
        ...


def check_programs(
    programs: Mapping[tuple[Stage, int], Program],
    sizes: MiniSizes,
    weights: Mapping[str, FloatArray],
    *,
    num_steps: int,
    precision: str,
) -> None:
    """Run every program on made-up rows and compare.

    Args:
        programs: Programs by stage and batch size.
        sizes: Sizes of the network.
        weights: The weights the programs were made from.
        num_steps: Euler steps of the denoise stage.
        precision: Number format of the programs.

    Raises:
        ConfigError: A program is off by more than its number format explains.
    """
    rows, expected = _expected(sizes, weights, num_steps)
    for (stage, size), program in programs.items():
        places = np.arange(size) % NUM_ROWS
        for name, array in program.inputs.items():
            array[...] = rows[name][places]
        program.run()
        wanted = expected[stage][places]
        allowed = TOLERANCES[precision] * max(1.0, float(np.abs(wanted).max()))
        off = float(np.abs(program.output - wanted).max())
        # Written so that NaN does not pass.
        if not off <= allowed:
            raise ConfigError(
                f"the engine computes the {stage.name.lower()} stage wrongly at batch size {size}:"
                f" off by {off:.3g}, {precision} explains {allowed:.3g};"
                " try another precision or version of the engine"
            )


def _expected(
    sizes: MiniSizes, weights: Mapping[str, FloatArray], num_steps: int
) -> tuple[dict[str, NDArray[Any]], dict[Stage, FloatArray]]:
    rng = np.random.default_rng(SEED)
    ops = NumpyOps(weights)
    image_shape = (NUM_ROWS, sizes.image_size, sizes.image_size, 3)
    image: Any = rng.integers(0, 256, image_shape, np.uint8)
    words: Any = rng.integers(0, sizes.vocabulary_size, (NUM_ROWS, sizes.num_words), np.int32)
    kv = structure.prefix(ops, sizes, image, words)
    state = rng.standard_normal((NUM_ROWS, sizes.state_dim), np.float32)
    noise, previous = rng.standard_normal(
        (2, NUM_ROWS, sizes.horizon, sizes.action_dim), np.float32
    )
    hold = rng.random((NUM_ROWS, sizes.horizon, 1), np.float32)
    actions = structure.denoise(
        ops, sizes, num_steps, kv=kv, state=state, noise=noise, previous=previous, hold=hold
    )
    rows = {"image": image, "words": words, "kv": kv, "state": state}
    rows |= {"noise": noise, "previous_chunk": previous, "hold": hold}
    return rows, {Stage.PREFIX: kv, Stage.DENOISE: actions}
