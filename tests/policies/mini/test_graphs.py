from typing import Any

import numpy as np
import openvino as ov
import pytest
from numpy.typing import NDArray

from takt.policies.mini import structure
from takt.policies.mini.graphs import Weights, denoise_graph, prefix_graph
from takt.policies.mini.reference import NumpyOps
from takt.policies.mini.sizes import MiniSizes

STEPS = 3


def run(graph: ov.Model, *inputs: NDArray[Any]) -> NDArray[np.float32]:
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    return ov.Core().compile_model(graph, "CPU", settings)(list(inputs))[0]


@pytest.mark.parametrize("batch", [1, 2])
def test_the_prefix_graph_equals_the_reference(
    tiny: MiniSizes, tiny_weights: Weights, batch: int
) -> None:
    rng = np.random.default_rng(3)
    image = rng.integers(0, 256, (batch, 32, 32, 3), np.uint8)
    words = rng.integers(0, 5, (batch, 3), np.int32)

    kv = run(prefix_graph(tiny, tiny_weights, batch), image, words)

    expected = structure.prefix(NumpyOps(tiny_weights), tiny, image, words)  # type: ignore[arg-type]
    np.testing.assert_allclose(kv, expected, atol=1e-4)


@pytest.mark.parametrize("batch", [1, 2])
def test_the_denoise_graph_equals_the_reference(
    tiny: MiniSizes, tiny_weights: Weights, batch: int
) -> None:
    rng = np.random.default_rng(4)
    chunk = (batch, tiny.horizon, tiny.action_dim)
    given: dict[str, Any] = {
        "kv": rng.standard_normal((batch, *tiny.kv_shape), np.float32),
        "state": rng.standard_normal((batch, tiny.state_dim), np.float32),
        "noise": rng.standard_normal(chunk, np.float32),
        "previous": rng.standard_normal(chunk, np.float32),
        "hold": rng.random((batch, tiny.horizon, 1), np.float32),
    }

    actions = run(denoise_graph(tiny, tiny_weights, batch, STEPS), *given.values())

    expected = structure.denoise(NumpyOps(tiny_weights), tiny, STEPS, **given)
    np.testing.assert_allclose(actions, expected, atol=1e-4)
