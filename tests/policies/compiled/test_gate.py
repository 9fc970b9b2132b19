"""The gate sees every captured layout and batch size, and lets no difference through."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.policies.lerobot.checkpoints import PI0, opened

from takt.core.request import Stage
from takt.policies.compiled.gate import TOLERANCES, ParityError, check_parity
from takt.policies.compiled.reference import NUM_ROWS, reference_rows
from takt.policies.lerobot.opening import CheckpointOptions
from takt.schema.row import Row

SIZES = CheckpointOptions(prefix_sizes=(1, 3), denoise_sizes=(1, 2, 4))


class KnownNetwork:
    """Answers every reference row with a chunk that follows from its noise."""

    def __init__(self) -> None:
        self.checkpoint = opened(PI0, SIZES)
        self.spec = self.checkpoint.spec("arm")
        self.ran: set[tuple[Stage, int, int]] = set()
        self.wrong: dict[tuple[Stage, int, int], float] = {}
        """What is added by stage, layout and size."""
        self._off: dict[int, float] = {}
        self._noise: dict[int, np.ndarray] = {}

    def prefix(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> None:
        self.ran.add((Stage.PREFIX, layout, size))
        for row, slot in zip(rows, kv_slots, strict=True):
            self._noise[slot] = row.tensors["noise"]
            self._off[slot] = self.wrong.get((Stage.PREFIX, layout, size), 0.0)

    def denoise(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> np.ndarray:
        self.ran.add((Stage.DENOISE, layout, size))
        off = self.wrong.get((Stage.DENOISE, layout, size), 0.0)
        for row, slot in zip(rows, kv_slots, strict=True):
            assert np.array_equal(row.tensors["noise"], self._noise[slot])
        return np.stack([self._noise[slot] + self._off[slot] + off for slot in kv_slots])

    def expected(self) -> np.ndarray:
        layouts = range(len(self.spec.layouts))
        rows = [reference_rows(self.spec, self.checkpoint, layout) for layout in layouts]
        return np.array([[row.tensors["noise"] for row in of_layout] for of_layout in rows])


def checked(network: Any, precision: str = "f32") -> float:  # noqa: ANN401 - half a Network
    return check_parity(network, network.checkpoint, network.expected(), precision=precision)


def shapes(network: KnownNetwork) -> set[tuple[Stage, int, int]]:
    spec = network.spec
    return {
        (stage, layout, size)
        for stage, sizes in ((Stage.PREFIX, spec.prefix_sizes), (Stage.DENOISE, spec.denoise_sizes))
        for layout in range(len(spec.layouts))
        for size in sizes
    }


def test_every_captured_shape_of_both_stages_is_run() -> None:
    network = KnownNetwork()

    assert checked(network) == 0
    assert network.ran == shapes(network)


def test_the_largest_difference_is_told() -> None:
    network = KnownNetwork()
    network.wrong[Stage.DENOISE, 2, 4] = 2e-5

    assert checked(network) == pytest.approx(2e-5, rel=0.1)


@pytest.mark.parametrize("fault", sorted(shapes(KnownNetwork())), ids=str)
def test_a_fault_in_a_single_shape_closes_the_gate(fault: tuple[Stage, int, int]) -> None:
    network = KnownNetwork()
    network.wrong[fault] = 0.01

    layout = network.spec.layouts[fault[1]].name
    with pytest.raises(ParityError, match=f"{layout}.*off by 0.01.*f32 explains"):
        checked(network)
    assert checked(network, "bf16") == pytest.approx(0.01, rel=0.01)


def test_nan_closes_the_gate() -> None:
    network = KnownNetwork()
    network.wrong[Stage.PREFIX, 0, 1] = np.nan

    with pytest.raises(ParityError, match="off by nan"):
        checked(network, "bf16")


def test_reference_chunks_of_another_shape_close_the_gate() -> None:
    network = KnownNetwork()

    with pytest.raises(ParityError, match="reference of shape"):
        check_parity(
            network,  # pyright: ignore[reportArgumentType]
            network.checkpoint,
            network.expected()[:, : NUM_ROWS - 1],
            precision="f32",
        )


def test_a_wider_format_is_held_to_a_narrower_tolerance() -> None:
    assert TOLERANCES["f32"] < TOLERANCES["bf16"] < 0.1
