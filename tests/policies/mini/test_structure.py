from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from takt.policies.mini import structure
from takt.policies.mini.graphs import Weights
from takt.policies.mini.reference import NumpyOps
from takt.policies.mini.sizes import MiniSizes


def inputs(sizes: MiniSizes, batch: int = 1) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(5)
    chunk = (batch, sizes.horizon, sizes.action_dim)
    return {
        "kv": rng.standard_normal((batch, *sizes.kv_shape)).astype(np.float32),
        "state": rng.standard_normal((batch, sizes.state_dim)).astype(np.float32),
        "noise": rng.standard_normal(chunk).astype(np.float32),
        "previous": rng.standard_normal(chunk).astype(np.float32),
        "hold": np.zeros((batch, sizes.horizon, 1), np.float32),
    }


def denoised(
    sizes: MiniSizes, weights: Weights, given: dict[str, Any], steps: int = 3
) -> NDArray[np.float32]:
    return structure.denoise(NumpyOps(weights), sizes, steps, **given)


def test_every_tensor_of_the_table_is_read(tiny: MiniSizes, tiny_weights: Weights) -> None:
    class Watched(dict[str, NDArray[np.float32]]):
        def __getitem__(self, name: str) -> NDArray[np.float32]:
            read.add(name)
            return super().__getitem__(name)

    read: set[str] = set()
    watched = Watched(tiny_weights)
    image = np.zeros((1, 32, 32, 3), np.uint8)

    structure.prefix(NumpyOps(watched), tiny, image, np.zeros((1, 3), np.int32))  # type: ignore[arg-type]
    denoised(tiny, watched, inputs(tiny))

    assert read == set(tiny_weights)


def test_one_euler_step_is_noise_minus_velocity(tiny: MiniSizes, tiny_weights: Weights) -> None:
    given = inputs(tiny)
    ops = NumpyOps(tiny_weights)
    caches = [
        ops.keys_and_values(given["kv"][:, layer], tiny.num_heads)
        for layer in range(tiny.num_layers)
    ]
    vector = structure.time_vectors(ops, tiny, np.ones(1, np.float32))

    slope = structure.velocity(
        ops, tiny, caches, given["state"], x=given["noise"], time_vector=vector
    )

    np.testing.assert_allclose(
        denoised(tiny, tiny_weights, given, steps=1), given["noise"] - slope, atol=1e-6
    )


def test_time_vectors_differ_from_step_to_step(tiny: MiniSizes, tiny_weights: Weights) -> None:
    times = np.linspace(1, 0.1, 10, dtype=np.float32)

    vectors = structure.time_vectors(NumpyOps(tiny_weights), tiny, times)

    assert np.abs(np.diff(vectors, axis=0)).max(-1).min() > 1e-3


@pytest.mark.parametrize("name", ["kv", "state", "noise"])
def test_cache_state_and_noise_each_change_the_actions(
    tiny: MiniSizes, tiny_weights: Weights, name: str
) -> None:
    given = inputs(tiny)
    other = given | {name: given[name] + 0.5}

    difference = denoised(tiny, tiny_weights, given) - denoised(tiny, tiny_weights, other)

    assert np.abs(difference).max() > 1e-3


def test_held_steps_equal_the_previous_chunk_and_free_steps_follow_them(
    tiny: MiniSizes, tiny_weights: Weights
) -> None:
    given = inputs(tiny)
    free = denoised(tiny, tiny_weights, given)
    given["hold"][:, :2] = 1

    held = denoised(tiny, tiny_weights, given)

    np.testing.assert_array_equal(held[:, :2], given["previous"][:, :2])
    assert np.abs(held[:, 2:] - free[:, 2:]).max() > 1e-4


def test_without_hold_the_previous_chunk_has_no_influence(
    tiny: MiniSizes, tiny_weights: Weights
) -> None:
    given = inputs(tiny)
    other = given | {"previous": given["previous"] + 1}

    np.testing.assert_array_equal(
        denoised(tiny, tiny_weights, given), denoised(tiny, tiny_weights, other)
    )


def test_image_and_words_each_change_the_cache(tiny: MiniSizes, tiny_weights: Weights) -> None:
    ops = NumpyOps(tiny_weights)
    image, words = np.zeros((1, 32, 32, 3), np.uint8), np.ones((1, 3), np.int32)
    plain: Any = structure.prefix(ops, tiny, image, words)  # type: ignore[arg-type]

    brighter: Any = structure.prefix(ops, tiny, image + 100, words)  # type: ignore[arg-type]
    other: Any = structure.prefix(ops, tiny, image, words + 1)  # type: ignore[arg-type]

    assert plain.shape == (1, *tiny.kv_shape)
    assert np.abs(plain - brighter).max() > 1e-3
    assert np.abs(plain - other).max() > 1e-3
