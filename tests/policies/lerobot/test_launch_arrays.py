import numpy as np
import pytest
from tests.policies.lerobot.checkpoints import PI0, opened

from takt.core.request import Stage
from takt.errors import InvariantError
from takt.policies.compiled.reference import reference_rows
from takt.policies.lerobot.launch_arrays import LaunchArrays
from takt.policies.lerobot.opening import CheckpointOptions

CHECKPOINT = opened(PI0, CheckpointOptions(prefix_sizes=(1, 2), denoise_sizes=(1, 4)))
SPEC = CHECKPOINT.spec("arm")


def arrays() -> LaunchArrays:
    return LaunchArrays(SPEC, CHECKPOINT.layouts)


def test_views_have_the_shape_of_the_launch_and_are_contiguous() -> None:
    made = arrays()
    for layout, shape in enumerate(CHECKPOINT.layouts):
        for size in SPEC.prefix_sizes:
            views = made.prefix(size, layout)

            assert views["images"].shape[:2] == (size, shape.images)
            assert views["tokens"].shape == (size, shape.tokens)
            assert all(view.flags.c_contiguous for view in views.values())
            assert all(len(view) == size for view in views.values())


def test_views_are_the_arrays_taken_at_the_start() -> None:
    made = arrays()
    made.prefix(2, 0)["images"][...] = 7

    assert made.buffers[Stage.PREFIX]["images"].reshape(-1)[0] == 7


def test_a_row_is_copied_as_far_as_the_layout_reaches() -> None:
    made = arrays()
    (row, _) = reference_rows(SPEC, CHECKPOINT, 0)
    tokens, images = CHECKPOINT.layouts[0].tokens, int(row.tensors["num_images"])

    views = made.write_prefix([row], 2, 0)

    np.testing.assert_array_equal(views["tokens"][0], row.tensors["tokens"][:tokens])
    np.testing.assert_array_equal(views["images"][0, :images], row.tensors["images"][:images])
    np.testing.assert_array_equal(made.write_denoise([row], 4)["noise"][0], row.tensors["noise"])


@pytest.mark.parametrize(("rows", "size"), [(1, 3), (2, 1), (0, 1)])
def test_a_launch_that_was_not_captured_is_our_own_mistake(rows: int, size: int) -> None:
    given = reference_rows(SPEC, CHECKPOINT, 0)[:rows]

    with pytest.raises(InvariantError):
        arrays().write_prefix(given, size, 0)
    with pytest.raises(InvariantError):
        arrays().write_denoise(given, size)
