import math

import pytest

from takt.errors import ConfigError
from takt.policies.mini.sizes import MiniSizes, num_parameters, tensor_shapes


def test_the_default_network_has_at_most_six_million_parameters() -> None:
    assert 1_000_000 < num_parameters(MiniSizes()) <= 6_000_000


def test_the_parameters_are_those_of_the_tensors() -> None:
    shapes = tensor_shapes(MiniSizes())

    assert num_parameters(MiniSizes()) == sum(math.prod(shape) for shape in shapes.values())


def test_the_last_prefix_layer_ends_at_its_keys_and_values() -> None:
    last = {name for name in tensor_shapes(MiniSizes()) if name.startswith("prefix.layers.3.")}

    assert {name.split(".")[4] for name in last} == {"norm", "key_value"}


def test_proprioception_enters_the_denoise_stage_alone() -> None:
    entries = [name for name in tensor_shapes(MiniSizes()) if "state" in name]

    assert entries == ["denoise.state.weight", "denoise.state.bias"]


@pytest.mark.parametrize(
    "change",
    [
        {"image_size": 100},
        {"num_heads": 0},
        {"denoise_width": 127},
        {"prefix_width": 4097},
        {"num_layers": 4096},
    ],
)
def test_impossible_sizes_are_refused_before_any_memory_is_taken(change: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        MiniSizes(**change)
