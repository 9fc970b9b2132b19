import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from takt.errors import ConfigError
from takt.policies.mini.checkpoint import (
    CARD_FILE,
    SHIPPED,
    WEIGHTS_FILE,
    mini_spec,
    read_card,
    read_weights,
)
from takt.policies.mini.sizes import tensor_shapes

NAME = "denoise.state.weight"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for file in (CARD_FILE, WEIGHTS_FILE):
        shutil.copy(SHIPPED / file, tmp_path / file)
    return tmp_path


def read(directory: Path) -> dict[str, Any]:
    return dict(read_weights(directory, read_card(directory).sizes))


def test_the_shipped_weights_fill_the_table_as_float32() -> None:
    weights = read(SHIPPED)

    assert {name: w.shape for name, w in weights.items()} == tensor_shapes(read_card(SHIPPED).sizes)
    assert {w.dtype for w in weights.values()} == {np.dtype(np.float32)}


def test_the_package_carries_at_most_15_megabytes_of_policy_data() -> None:
    files = [path for path in SHIPPED.parent.rglob("*") if path.suffix != ".py" and path.is_file()]

    assert sum(path.stat().st_size for path in files if "__pycache__" not in path.parts) < 15e6


def test_the_spec_is_the_one_that_was_promised() -> None:
    spec = mini_spec("mini", SHIPPED, read_card(SHIPPED))

    assert (spec.action.horizon, spec.action.execution_horizon) == (16, 8)
    assert read_card(SHIPPED).num_steps == 10
    assert max(spec.observation.cameras[0].height, spec.observation.cameras[0].width) <= 112
    assert spec.is_flow
    assert "state" in {tensor.name for tensor in spec.denoise_inputs}
    assert "state" not in {tensor.name for tensor in spec.prefix_inputs}


def test_other_weights_have_another_digest(copied: Path) -> None:
    card = read_card(copied)
    before = mini_spec("mini", copied, card).digest
    assert before == mini_spec("mini", SHIPPED, card).digest

    tensors = load_file(copied / WEIGHTS_FILE)
    save_file(tensors | {NAME: tensors[NAME] + np.float16(1)}, copied / WEIGHTS_FILE)

    assert mini_spec("mini", copied, card).digest != before


Tensors = dict[str, Any]


def without(tensors: Tensors) -> Tensors:
    return {name: value for name, value in tensors.items() if name != NAME}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without, f"missing {NAME}"),
        (lambda t: t | {"extra": np.zeros(1, np.float16)}, "unexpected extra"),
        (lambda t: t | {NAME: t[NAME].T.copy()}, rf"{NAME} has shape \(4, 128\), expected"),
        (lambda t: t | {NAME: t[NAME].astype(np.int8)}, f"{NAME} must be float16 or float32"),
        (lambda t: t | {NAME: t[NAME] * np.float16(np.nan)}, f"{NAME} holds NaN"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(
    copied: Path, change: Callable[[Tensors], Tensors], said: str
) -> None:
    save_file(change(load_file(copied / WEIGHTS_FILE)), copied / WEIGHTS_FILE)

    with pytest.raises(ConfigError, match=said):
        read(copied)


@pytest.mark.parametrize("data", [b"", b"\x80\x04K\x00.", struct.pack("<Q", 2**63) + b"{}"])
def test_a_file_that_is_no_safetensors_is_refused(copied: Path, data: bytes) -> None:
    (copied / WEIGHTS_FILE).write_bytes(data)

    with pytest.raises(ConfigError, match="cannot be read"):
        read(copied)


def test_a_truncated_file_is_refused(copied: Path) -> None:
    data = (copied / WEIGHTS_FILE).read_bytes()
    (copied / WEIGHTS_FILE).write_bytes(data[: len(data) // 2])

    with pytest.raises(ConfigError, match="cannot be read"):
        read(copied)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_steps": 0}, "num_steps"),
        ({"state_std": [1.0, 1.0, 1.0, 0.0]}, "standard deviations"),
        ({"state_mean": [0.0, 0.0, 0.0, float("nan")]}, "finite"),
        ({"action_mean": [0.0]}, "action_mean must have 4 entries"),
        ({"vocabulary": ["open"]}, "vocabulary"),
        ({"family": "pi0"}, "family"),
        ({"colour": "red"}, r"policy\.json\.colour: unknown key"),
    ],
)
def test_a_card_that_contradicts_itself_is_refused(
    copied: Path, change: dict[str, Any], said: str
) -> None:
    card = json.loads((copied / CARD_FILE).read_text())
    (copied / CARD_FILE).write_text(json.dumps(card | change))

    with pytest.raises(ConfigError, match=said):
        read_card(copied)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.json"):
        read_card(tmp_path)
