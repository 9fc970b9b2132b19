import numpy as np
import pytest

from takt.errors import UsageError
from takt.schema.chunk import ActionChunk


def test_a_chunk_knows_its_horizon_and_action_dim() -> None:
    chunk = ActionChunk(actions=np.zeros((16, 4), np.float32), first_timestep=3)

    assert (chunk.horizon, chunk.action_dim) == (16, 4)


@pytest.mark.parametrize("actions", [np.zeros(4, np.float32), np.zeros((2, 4), np.float64)])
def test_a_chunk_is_float32_of_two_axes(actions: np.ndarray) -> None:
    with pytest.raises(UsageError, match="float32 of shape"):
        ActionChunk(actions=actions)


@pytest.mark.parametrize("steps", [0, 17])
def test_no_more_steps_can_be_executed_than_a_chunk_has(steps: int) -> None:
    with pytest.raises(UsageError, match=r"1\.\.16"):
        ActionChunk(actions=np.zeros((16, 4), np.float32), execution_horizon=steps)
