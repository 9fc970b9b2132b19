from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from takt.core.request import Stage
from takt.errors import ConfigError
from takt.policies.mini import structure
from takt.policies.mini.gate import check_programs
from takt.policies.mini.graphs import Weights
from takt.policies.mini.reference import NumpyOps
from takt.policies.mini.sizes import MiniSizes

SIZE = 3


class NumpyPrograms:
    """The prefix stage in NumPy, with a fault of the test's choice."""

    def __init__(
        self, sizes: MiniSizes, weights: Weights, fault: Callable[[NDArray[np.float32]], Any]
    ) -> None:
        self.inputs: dict[str, NDArray[Any]] = {
            "image": np.zeros((SIZE, sizes.image_size, sizes.image_size, 3), np.uint8),
            "words": np.zeros((SIZE, sizes.num_words), np.int32),
        }
        self.output = np.zeros((SIZE, *sizes.kv_shape), np.float32)
        self._sizes, self._ops, self._fault = sizes, NumpyOps(weights), fault

    def run(self) -> None:
        image: Any = self.inputs["image"]
        words: Any = self.inputs["words"]
        self.output[...] = self._fault(structure.prefix(self._ops, self._sizes, image, words))


def check(sizes: MiniSizes, weights: Weights, fault: Callable[[NDArray[np.float32]], Any]) -> None:
    programs = {(Stage.PREFIX, SIZE): NumpyPrograms(sizes, weights, fault)}
    check_programs(programs, sizes, weights, num_steps=1, precision="f32")


def test_a_program_that_equals_the_reference_passes(tiny: MiniSizes, tiny_weights: Weights) -> None:
    check(tiny, tiny_weights, lambda kv: kv)


@pytest.mark.parametrize(
    "fault",
    [lambda kv: kv[::-1], lambda kv: kv * np.float32(1.01), lambda kv: kv * np.float32(np.nan)],
)
def test_swapped_rows_small_errors_and_nan_do_not_pass(
    tiny: MiniSizes, tiny_weights: Weights, fault: Callable[[NDArray[np.float32]], Any]
) -> None:
    def of_first_two(kv: NDArray[np.float32]) -> NDArray[np.float32]:
        kv[:2] = fault(kv[:2])
        return kv

    with pytest.raises(ConfigError, match="prefix stage wrongly at batch size 3"):
        check(tiny, tiny_weights, of_first_two)
