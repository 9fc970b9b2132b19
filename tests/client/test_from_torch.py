import sys
from typing import Any

import numpy as np
import pytest

from takt.client.from_torch import from_torch
from takt.errors import ConfigError, UsageError
from takt.robot.action_queue import TimedChunk
from takt.robot.blending import merge_rule

OLD, NEW = np.array([0.0, 1.0], np.float32), np.array([1.0, 3.0], np.float32)
for _array in (OLD, NEW):
    _array.flags.writeable = False


@pytest.fixture
def torch() -> Any:  # noqa: ANN401
    return pytest.importorskip("torch")


def test_a_function_of_tensors_blends_arrays(torch: Any) -> None:  # noqa: ANN401
    blend = from_torch(lambda old, new: torch.lerp(old, new, 0.5))

    mixed = blend(OLD, NEW)

    assert isinstance(mixed, np.ndarray)
    np.testing.assert_array_equal(mixed, [0.5, 2.0])


def test_it_joins_chunks_as_the_blend_of_a_loop(torch: Any) -> None:  # noqa: ANN401
    rule = merge_rule(from_torch(lambda old, new: torch.maximum(old, new)))
    queued = TimedChunk(0, np.full((3, 2), 5.0, np.float32))
    arrived = TimedChunk(1, np.zeros((3, 2), np.float32))

    plan = rule(queued, arrived, 1)

    np.testing.assert_array_equal(np.asarray(plan.actions)[:, 0], [5.0, 5.0, 0.0])


def test_a_function_may_write_to_its_tensors(torch: Any) -> None:  # noqa: ANN401
    del torch

    mixed = from_torch(lambda old, new: old.add_(new))(OLD, NEW)

    np.testing.assert_array_equal(mixed, [1.0, 4.0])
    np.testing.assert_array_equal(OLD, [0.0, 1.0])


def test_a_function_may_fill_the_same_tensor_every_time(torch: Any) -> None:  # noqa: ANN401
    buffer = torch.zeros(1)
    rule = merge_rule(from_torch(lambda old, new: torch.add(old, new, out=buffer)))
    queued = TimedChunk(0, np.arange(3, dtype=np.float32)[:, None])

    plan = rule(queued, TimedChunk(0, np.ones((3, 1), np.float32)), 0)

    np.testing.assert_array_equal(np.asarray(plan.actions)[:, 0], [1.0, 2.0, 3.0])


def test_tensors_are_float32_whatever_the_actions_are(torch: Any) -> None:  # noqa: ANN401
    kinds: list[Any] = []

    def blend(old: Any, new: Any) -> Any:  # noqa: ANN401
        kinds.extend([old.dtype, new.dtype])
        return new

    from_torch(blend)(OLD.astype(np.float64), NEW)

    assert kinds == [torch.float32] * 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shorter", r"must return shape \(2,\), got \(1,\)"),
        ("infinite", "NaN or infinity"),
        ("array", "must return a tensor, got ndarray"),
    ],
)
def test_what_a_function_returns_is_checked(torch: Any, name: str, said: str) -> None:  # noqa: ANN401
    del torch
    functions: dict[str, Any] = {
        "shorter": lambda old, new: new[:1],
        "infinite": lambda old, new: new / (old * 0),
        "array": lambda old, new: new.numpy(),
    }

    rule = merge_rule(from_torch(functions[name]))

    with pytest.raises(UsageError, match=said):
        rule(TimedChunk(0, OLD[None]), TimedChunk(0, NEW[None]), 0)


def test_a_computer_without_torch_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(ConfigError, match="needs torch"):
        from_torch(lambda old, new: new)
