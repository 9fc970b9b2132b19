"""A network small enough to compile in a blink, with random weights."""

import numpy as np
import pytest

from takt.policies.mini.graphs import Weights
from takt.policies.mini.sizes import MiniSizes, tensor_shapes

TINY = MiniSizes(
    image_size=32,
    num_words=3,
    vocabulary_size=5,
    stem_width=8,
    prefix_width=16,
    denoise_width=8,
    num_layers=2,
    num_heads=2,
    head_width=8,
    state_dim=3,
    action_dim=2,
    horizon=4,
)


@pytest.fixture(scope="session")
def tiny() -> MiniSizes:
    return TINY


@pytest.fixture(scope="session")
def tiny_weights() -> Weights:
    rng = np.random.default_rng(1)
    return {
        name: (rng.standard_normal(shape) * 0.5).astype(np.float32)
        for name, shape in tensor_shapes(TINY).items()
    }
