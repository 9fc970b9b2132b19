"""The served graphs compute what torch computes with the shipped weights."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "policies"


@pytest.mark.slow
def test_the_graphs_of_the_shipped_policy_equal_torch(
    scripts: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARK), *sys.path])

    found = importlib.import_module("eval_mini").parity("mini")

    assert found["f32_to_torch"] < 1e-4
    assert found["batch_8_to_singles"] < 1e-4
    assert found.get("bf16_to_torch", 0.0) < 0.1  # a CPU may be without bf16
