"""Rows in a launch do not know of each other, whatever its size, layout and place in the cache."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the networks need torch")

from tests.policies.lerobot.checkpoints import PI0, SMOLVLA, opened, seen  # noqa: E402

from takt.core.request import Stage  # noqa: E402
from takt.errors import InvariantError  # noqa: E402
from takt.policies.guidance import prefix_weights  # noqa: E402
from takt.policies.interface import Placement, Precision  # noqa: E402
from takt.policies.lerobot.checkpoint import FlowCheckpoint  # noqa: E402
from takt.policies.lerobot.opening import CheckpointOptions, make_network  # noqa: E402
from takt.policies.lerobot.rows import FlowPreprocessor  # noqa: E402
from takt.policies.networks.serving import FlowRunner  # noqa: E402
from takt.policies.networks.stage import PrefixResult, compacted  # noqa: E402
from takt.schema.row import Chunking, Row, RowRequest  # noqa: E402

TOLERANCE = 1e-5
SIZES = CheckpointOptions(prefix_sizes=(1, 4), denoise_sizes=(1, 2, 4))
PROMPTS = ("fold", "put the red cube into the bowl", "stack " * 60)


@pytest.fixture(scope="module", params=[PI0, SMOLVLA], ids=["pi0", "smolvla"])
def runner(request: pytest.FixtureRequest) -> Iterator[FlowRunner]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    checkpoint = opened(request.param, SIZES)
    yield loaded(checkpoint)
    torch.set_num_threads(before)


def loaded(checkpoint: FlowCheckpoint, precision: Precision = "auto") -> FlowRunner:
    runner = FlowRunner(
        checkpoint.spec("arm"),
        checkpoint,
        lambda: make_network(checkpoint),
        Placement(kv_slots=6, precision=precision),
    )
    runner.load()
    return runner


def rows_of(runner: FlowRunner, delays: Sequence[int | None] = (None, None, None)) -> list[Row]:
    checkpoint = runner._checkpoint
    rows: list[Row] = []
    for number, (prompt, delay) in enumerate(zip(PROMPTS, delays, strict=True)):
        slot = {t.name: np.zeros(t.shape, t.dtype) for t in runner.spec.slot_tensors}
        cameras = ("front", "wrist")[number % 2 :]
        request = RowRequest(session=str(number), chunking=chunking(runner, delay))
        header = FlowPreprocessor(runner.spec, checkpoint).write(
            seen(prompt, *cameras), slot, request
        )
        rows.append(Row(header, slot))
    return rows


def chunking(runner: FlowRunner, delay: int | None) -> Chunking | None:
    if delay is None:
        return None
    action = runner.spec.action
    shape = (action.horizon, action.model_action_dim)
    previous = np.random.default_rng(delay).standard_normal(shape).astype(np.float32)
    weights = prefix_weights(delay, 8, action.horizon)
    return Chunking(previous_chunk=previous, prefix_weights=weights, frozen_steps=delay)


def alone(runner: FlowRunner, row: Row) -> np.ndarray:
    layout = row.header.layout
    runner.prefix([row], size=1, layout=layout, kv_slots=[2])
    return runner.denoise([row], size=1, layout=layout, kv_slots=[2])[0]


def last(runner: FlowRunner) -> int:
    return len(runner.spec.layouts) - 1


@pytest.mark.slow
def test_a_batch_of_three_equals_three_singles(runner: FlowRunner) -> None:
    rows = rows_of(runner)
    singles = np.stack([alone(runner, row) for row in rows])

    runner.prefix(rows, size=4, layout=last(runner), kv_slots=[5, 0, 3])
    together = runner.denoise(rows, size=4, layout=last(runner), kv_slots=[5, 0, 3])

    np.testing.assert_allclose(together, singles, atol=TOLERANCE)


@pytest.mark.slow
def test_rows_with_different_delays_share_a_batch(runner: FlowRunner) -> None:
    rows = rows_of(runner, (None, 3, 1))
    free = rows_of(runner)
    singles = np.stack([alone(runner, row) for row in rows])

    runner.prefix(rows, size=4, layout=last(runner), kv_slots=[0, 1, 2])
    together = runner.denoise(rows, size=4, layout=last(runner), kv_slots=[0, 1, 2])

    np.testing.assert_allclose(together, singles, atol=TOLERANCE)
    # The row without chunking is untouched, the others are drawn to what is being executed.
    np.testing.assert_allclose(together[0], alone(runner, free[0]), atol=TOLERANCE)
    for row, chunk in zip(rows[1:], together[1:], strict=True):
        start = int(row.tensors["frozen_steps"])
        previous = row.tensors["previous_chunk"][:start]
        assert np.abs(chunk[:start] - previous).max() < 0.2


@pytest.mark.slow
def test_a_denoise_batch_may_mix_prefix_launches_and_layouts(runner: FlowRunner) -> None:
    rows = rows_of(runner)
    singles = np.stack([alone(runner, row) for row in rows[:2]])

    runner.prefix(rows[:1], size=4, layout=last(runner), kv_slots=[4])
    runner.prefix(rows[1:2], size=1, layout=rows[1].header.layout, kv_slots=[1])
    layout = max(row.header.layout for row in rows[:2])
    for denoise in (layout, last(runner)):
        chunks = runner.denoise(rows[1::-1], size=2, layout=denoise, kv_slots=[1, 4])

        np.testing.assert_allclose(chunks[::-1], singles, atol=TOLERANCE)


@pytest.mark.slow
def test_a_row_of_nan_hurts_neither_its_mates_nor_the_next_in_its_slot(runner: FlowRunner) -> None:
    rows = rows_of(runner)
    singles = [alone(runner, row) for row in rows]
    broken = Row(rows[2].header, {n: a.copy() for n, a in rows[2].tensors.items()})
    broken.tensors["images"][...] = np.nan
    mixed = [rows[0], broken, rows[1]]

    runner.prefix(mixed, size=4, layout=last(runner), kv_slots=[0, 1, 2])
    chunks = runner.denoise(mixed, size=4, layout=last(runner), kv_slots=[0, 1, 2])
    runner.prefix(rows[:1], size=1, layout=rows[0].header.layout, kv_slots=[1])
    after = runner.denoise(rows[:1], size=1, layout=last(runner), kv_slots=[1])

    assert np.isnan(chunks[1]).all()
    np.testing.assert_allclose(chunks[[0, 2]], singles[:2], atol=TOLERANCE)
    np.testing.assert_allclose(after[0], singles[0], atol=TOLERANCE)


@pytest.mark.slow
def test_equal_launches_give_equal_bits(runner: FlowRunner) -> None:
    row = rows_of(runner)[1]

    np.testing.assert_array_equal(alone(runner, row), alone(runner, row))


def test_a_size_that_was_not_captured_is_our_own_mistake(runner: FlowRunner) -> None:
    rows = rows_of(runner)
    with pytest.raises(InvariantError):
        runner.prefix(rows, size=3, layout=0, kv_slots=[0, 1, 2])
    with pytest.raises(InvariantError):
        runner.denoise(rows, size=2, layout=0, kv_slots=[0, 1, 2])


@pytest.mark.slow
@pytest.mark.parametrize("golden", [PI0, SMOLVLA], ids=["pi0", "smolvla"])
def test_bf16_stays_near_f32(golden: Path) -> None:
    torch.set_num_threads(1)
    checkpoint = opened(golden, SIZES)
    exact, narrow = loaded(checkpoint), loaded(checkpoint, precision="bf16")
    row = rows_of(exact)[1]

    difference = np.abs(alone(exact, row) - alone(narrow, row)).max()

    assert narrow.precision == "bf16"
    assert 1e-4 < difference < 0.2


def test_real_tokens_move_to_the_front_in_order() -> None:
    kv = torch.arange(5.0).reshape(1, 1, 1, 1, 5, 1)
    real = torch.tensor([[False, True, False, True, True]])

    moved = compacted(PrefixResult(kv=kv, real=real))

    assert moved.kv.flatten().tolist()[:3] == [1, 3, 4]
    assert moved.real.tolist() == [[True, True, True, False, False]]


def test_a_network_that_was_not_loaded_or_is_closed_says_so() -> None:
    checkpoint = opened(PI0)
    runner = loaded(checkpoint)
    runner.enter_lane(Stage.PREFIX)
    assert runner.launch_time(Stage.PREFIX, 3) == 0
    runner.close()

    with pytest.raises(InvariantError, match="not loaded"):
        runner.warm()
