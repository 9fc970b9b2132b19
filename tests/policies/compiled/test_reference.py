import numpy as np
import pytest
from tests.policies.lerobot.checkpoints import PI0, SMOLVLA, opened

from takt.policies.compiled.reference import NUM_ROWS, reference_rows
from takt.policies.lerobot.checkpoint import FlowCheckpoint


@pytest.fixture(params=[PI0, SMOLVLA], ids=["pi0", "smolvla"])
def checkpoint(request: pytest.FixtureRequest) -> FlowCheckpoint:
    return opened(request.param)


def test_rows_have_the_tensors_of_a_slot_and_fit_their_layout(checkpoint: FlowCheckpoint) -> None:
    spec = checkpoint.spec("arm")
    declared = {tensor.name: (tensor.shape, tensor.dtype) for tensor in spec.slot_tensors}
    for layout, shape in enumerate(checkpoint.layouts):
        rows = reference_rows(spec, checkpoint, layout)

        assert len(rows) == NUM_ROWS
        for row in rows:
            assert {n: (a.shape, str(a.dtype)) for n, a in row.tensors.items()} == declared
            assert 1 <= row.tensors["num_images"] <= shape.images
            assert 1 <= row.tensors["num_tokens"] <= shape.tokens
            assert row.tensors["tokens"].max() < checkpoint.sizes.vocabulary
            assert np.abs(row.tensors["images"]).max() <= 1


def test_one_row_fills_the_layout_and_one_is_guided(checkpoint: FlowCheckpoint) -> None:
    shape = checkpoint.layouts[-1]
    full, guided = reference_rows(checkpoint.spec("arm"), checkpoint, len(checkpoint.layouts) - 1)

    assert (full.tensors["num_images"], full.tensors["num_tokens"]) == shape
    assert full.tensors["prefix_weights"].max() == 0
    assert guided.tensors["prefix_weights"].max() == 1


def test_rows_are_the_same_every_time_and_differ_between_layouts(
    checkpoint: FlowCheckpoint,
) -> None:
    spec = checkpoint.spec("arm")
    once, again, other = (reference_rows(spec, checkpoint, layout)[0] for layout in (0, 0, 1))

    assert all(np.array_equal(once.tensors[name], again.tensors[name]) for name in once.tensors)
    assert not np.array_equal(once.tensors["noise"], other.tensors["noise"])
