from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from takt.errors import ObservationError
from takt.policies.flow import flow_tensors, write_flow
from takt.policies.noise import noise_for
from takt.schema.row import Chunking, Executing, RowRequest
from takt.schema.spec import FLOW_INPUTS

PREVIOUS = np.arange(12, dtype=np.float32).reshape(4, 3)


def used_slot() -> dict[str, NDArray[Any]]:
    return {spec.name: np.full(spec.shape, 9, spec.dtype) for spec in flow_tensors(4, 3)}


def chunking(previous: NDArray[np.float32]) -> Chunking:
    return Chunking(
        previous_chunk=previous, prefix_weights=np.full(4, 0.5, np.float32), frozen_steps=2
    )


def test_every_flow_policy_declares_the_same_inputs() -> None:
    assert tuple(spec.name for spec in flow_tensors(4, 3)) == FLOW_INPUTS


def test_a_request_without_chunking_leaves_neutral_values_in_a_used_slot() -> None:
    slot = used_slot()

    write_flow(slot, RowRequest(session="arm", sequence=3, seed=7))

    np.testing.assert_array_equal(slot["noise"], noise_for(7, "arm", 3, (4, 3)))
    for name in ("previous_chunk", "prefix_weights", "frozen_steps"):
        assert not slot[name].any()


def test_a_request_with_chunking_writes_the_chunk_being_executed() -> None:
    slot = used_slot()

    write_flow(slot, RowRequest(chunking=chunking(PREVIOUS)))

    np.testing.assert_array_equal(slot["previous_chunk"], PREVIOUS)
    assert slot["prefix_weights"].tolist() == [0.5] * 4
    assert slot["frozen_steps"] == 2


def test_a_chunk_of_another_policy_is_refused() -> None:
    with pytest.raises(ObservationError, match=r"previous_chunk.*\(4, 3\)"):
        write_flow(used_slot(), RowRequest(chunking=chunking(PREVIOUS.T.copy())))


def test_a_leftover_that_the_policy_did_not_translate_is_refused() -> None:
    executing = Executing(actions=PREVIOUS, digest="sha256:ab", delay=1)

    with pytest.raises(ObservationError, match=r"leftover: .*takes no leftovers"):
        write_flow(used_slot(), RowRequest(executing=executing))
