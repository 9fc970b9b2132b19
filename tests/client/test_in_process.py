import numpy as np
import pytest

from takt.client.in_process import InProcess
from takt.errors import WireError
from takt.testing import ManualClock
from takt.units import ms


def test_a_policy_is_asked_as_a_server_is_and_has_no_network() -> None:
    clock = ManualClock()

    def policy(observation: object) -> np.ndarray:
        del observation
        clock.advance(ms(40))
        return np.zeros((3, 2))

    connection = InProcess(policy, clock=clock.now)
    first, second = connection.infer({}, due_in=ms(1), expires_in=ms(2)), connection.infer({})
    connection.close()

    assert first.actions.shape == (3, 2)
    assert (first.round_trip, first.network) == (ms(40), 0)
    assert (first.sequence, second.sequence) == (0, 1)


def test_a_chunk_is_a_copy_that_nobody_can_write_to() -> None:
    own = np.zeros((3, 2))
    answer = InProcess(lambda observation: own).infer({})

    own[:] = 1.0

    assert (answer.actions == 0).all()
    assert not answer.actions.flags.writeable


@pytest.mark.parametrize("chunk", [np.zeros(3), np.full((2, 2), np.nan), None, "chunk"])
def test_what_is_no_chunk_is_refused(chunk: object) -> None:
    with pytest.raises(WireError, match="actions: expected"):
        InProcess(lambda observation: chunk).infer({})  # type: ignore[arg-type, return-value]
