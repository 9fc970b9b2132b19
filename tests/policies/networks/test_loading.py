from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the networks need torch")

from tests.policies.lerobot.checkpoints import write_tensors  # noqa: E402

from takt.errors import ConfigError  # noqa: E402
from takt.policies.lerobot.names import NameRules  # noqa: E402
from takt.policies.networks.loading import load_network  # noqa: E402

RULES = NameRules(prefixes=(("net.", ""),), unused=("spare",), substitutes=(("bias", "spare"),))


def loaded(path: Path) -> Any:  # noqa: ANN401 - a torch module
    return load_network(lambda: torch.nn.Linear(2, 3), path, RULES, precision="f32", device="cpu")


def test_every_parameter_is_filled_from_the_tensor_the_rules_name(tmp_path: Path) -> None:
    path = tmp_path / "t"
    weight, bias = np.ones((3, 2), np.float16), np.arange(3, dtype=np.float32)
    write_tensors(path, {"model.net.weight": weight, "model.net.bias": bias})

    network = loaded(path)

    assert network.weight.dtype == torch.float32
    assert network.weight.sum() == 6
    assert network.bias.tolist() == [0, 1, 2]
    assert not network.weight.requires_grad


def test_a_tied_tensor_fills_the_parameter_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "t"
    spare = np.full(3, 7, np.float32)
    write_tensors(path, {"net.weight": np.ones((3, 2), np.float32), "spare": spare})

    assert loaded(path).bias.tolist() == [7, 7, 7]


def test_two_tensors_for_one_parameter_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    same = np.ones((3, 2), np.float32)
    bias = np.ones(3, np.float32)
    write_tensors(path, {"net.weight": same, "model.net.weight": same, "net.bias": bias})

    with pytest.raises(ConfigError, match="both mean weight"):
        loaded(path)


def test_everything_that_is_wrong_is_listed_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_tensors(path, {f"extra{n}": np.ones(1, np.float32) for n in range(9)})

    with pytest.raises(ConfigError, match=r"missing weight; missing bias; .* and 5 more"):
        loaded(path)
