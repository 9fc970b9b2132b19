from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from takt.core.request import Stage
from takt.errors import ConfigError, InvariantError
from takt.policies.catalog import open_policy
from takt.policies.flow import write_flow
from takt.policies.interface import FloatArray, Placement
from takt.policies.mini import structure
from takt.policies.mini.checkpoint import (
    SHIPPED,
    WEIGHTS_FILE,
    MiniCard,
    mini_spec,
    read_card,
    read_weights,
)
from takt.policies.mini.gate import TOLERANCES
from takt.policies.mini.graphs import Weights
from takt.policies.mini.network import MiniNetwork
from takt.policies.mini.reference import NumpyOps
from takt.policies.mini.replay import load_recordings
from takt.policies.mini.sizes import MiniSizes
from takt.schema.row import Chunking, Row, RowHeader, RowRequest
from takt.schema.spec import AxisSpec, CameraSpec
from takt.units import ms

AXES = tuple(AxisSpec(name=name) for name in "abc")


@pytest.fixture(scope="module")
def network(
    tiny: MiniSizes, tiny_weights: Weights, tmp_path_factory: pytest.TempPathFactory
) -> MiniNetwork:
    directory = tmp_path_factory.mktemp("tiny")
    save_file(dict(tiny_weights), directory / WEIGHTS_FILE)
    (directory / "policy.json").write_text("{}")
    card = MiniCard(
        family="mini",
        description="tiny",
        sizes=tiny,
        num_steps=2,
        execution_horizon=2,
        control_hz=10,
        camera=CameraSpec(name="image", height=32, width=32),
        state=AXES,
        state_mean=(0, 0, 0),
        state_std=(1, 1, 1),
        action=AXES[:2],
        action_mean=(0, 0),
        action_std=(1, 1),
        vocabulary=("a", "b", "c"),
        prefix_sizes=(1, 3),
        denoise_sizes=(1, 3),
    )
    placement = Placement(kv_slots=6, precision="f32")
    network = MiniNetwork(mini_spec("tiny", directory, card), card, directory, placement)
    network.load()
    network.warm()
    return network


def row(network: MiniNetwork, number: int, chunking: Chunking | None = None) -> Row:
    rng = np.random.default_rng(number)
    slot: dict[str, Any] = {t.name: np.zeros(t.shape, t.dtype) for t in network.spec.slot_tensors}
    slot["image"][...] = rng.integers(0, 256, slot["image"].shape)
    slot["words"][...] = rng.integers(0, 5, slot["words"].shape)
    slot["state"][...] = rng.standard_normal(slot["state"].shape)
    write_flow(slot, RowRequest(session="arm", sequence=number, chunking=chunking))
    return Row(RowHeader(state_dim=3, horizon=4, action_dim=2), slot)


def alone(network: MiniNetwork, given: Row) -> FloatArray:
    network.prefix([given], size=1, layout=0, kv_slots=[5])
    return network.denoise([given], size=1, layout=0, kv_slots=[5])[0]


def test_a_batch_equals_its_rows_alone(network: MiniNetwork) -> None:
    held = Chunking(
        previous_chunk=np.ones((4, 2), np.float32),
        prefix_weights=np.full(4, 0.3, np.float32),
        frozen_steps=1,
    )
    rows = [row(network, 0), row(network, 1, held), row(network, 2)]
    singles = [alone(network, each) for each in rows]

    network.prefix(rows, size=3, layout=0, kv_slots=[4, 0, 2])
    chunks = network.denoise(rows, size=3, layout=0, kv_slots=[4, 0, 2])

    np.testing.assert_allclose(chunks, singles, atol=1e-5)
    assert chunks[1, 0].tolist() == [1, 1]


def test_a_denoise_launch_may_batch_other_rows_and_be_part_full(network: MiniNetwork) -> None:
    rows = [row(network, number) for number in range(4)]
    singles = [alone(network, each) for each in rows]
    network.prefix(rows[:3], size=3, layout=0, kv_slots=[0, 1, 2])
    network.prefix(rows[3:], size=1, layout=0, kv_slots=[3])

    chunks = network.denoise([rows[3], rows[1]], size=3, layout=0, kv_slots=[3, 1])

    np.testing.assert_allclose(chunks, [singles[3], singles[1]], atol=1e-5)


def test_a_returned_chunk_survives_the_next_launch(network: MiniNetwork) -> None:
    first = alone(network, row(network, 1))
    kept = first.copy()

    alone(network, row(network, 2))

    np.testing.assert_array_equal(first, kept)


def test_a_row_that_is_not_finite_leaves_its_batch_mates_alone(network: MiniNetwork) -> None:
    good, bad = row(network, 0), row(network, 1)
    single = alone(network, good)
    bad.tensors["state"][...] = np.nan
    network.prefix([bad, good], size=3, layout=0, kv_slots=[0, 1])

    chunks = network.denoise([bad, good], size=3, layout=0, kv_slots=[0, 1])

    assert not np.isfinite(chunks[0]).any()
    np.testing.assert_allclose(chunks[1], single, atol=1e-5)


@pytest.mark.parametrize("rows", [0, 4])
def test_a_launch_has_between_one_row_and_its_size(network: MiniNetwork, rows: int) -> None:
    with pytest.raises(InvariantError, match=f"{rows} rows at size 3"):
        network.prefix([row(network, 0)] * rows, size=3, layout=0, kv_slots=list(range(rows)))


def test_a_size_that_was_not_captured_is_refused(network: MiniNetwork) -> None:
    with pytest.raises(InvariantError, match="size 2"):
        network.denoise([row(network, 0)], size=2, layout=0, kv_slots=[0])


def test_cores_that_this_process_may_not_use_are_refused() -> None:
    placement = Placement(kv_slots=1, prefix_cores=(9999,), denoise_cores=(0,))

    with pytest.raises(ConfigError, match="9999"):
        open_policy("mini").network(placement).load()


def test_a_network_that_computes_asks_for_no_waiting(network: MiniNetwork) -> None:
    assert network.launch_time(Stage.PREFIX, 3) == 0


def test_a_launch_may_be_told_how_long_it_lasts_at_least() -> None:
    parts = open_policy("mini", options={"at_least_ms": 500})
    network = parts.network(Placement(kv_slots=1))

    took = [network.launch_time(stage, 1) for stage in (Stage.PREFIX, Stage.DENOISE)]

    assert sum(took) == ms(500)
    assert parts.spec == open_policy("mini").spec


def test_a_launch_cannot_be_told_to_last_less_than_nothing() -> None:
    with pytest.raises(ConfigError, match="at_least_ms"):
        open_policy("mini", options={"at_least_ms": -1})


def test_an_engine_that_computes_something_else_is_not_loaded(
    network: MiniNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TOLERANCES, "f32", 0.0)

    with pytest.raises(ConfigError, match="prefix stage wrongly at batch size 1"):
        network.load()


@pytest.mark.slow
def test_the_shipped_network_equals_the_reference_on_recorded_observations() -> None:
    card = read_card(SHIPPED)
    spec = replace(mini_spec("mini", SHIPPED, card), prefix_sizes=(2,), denoise_sizes=(2,))
    network = MiniNetwork(spec, card, SHIPPED, Placement(kv_slots=4, precision="f32"))
    network.load()
    rows = [recorded_row(number) for number in range(2)]

    network.prefix(rows, size=2, layout=0, kv_slots=[3, 0])
    chunks = network.denoise(rows, size=2, layout=0, kv_slots=[3, 0])

    np.testing.assert_allclose(chunks, reference(card, rows), atol=1e-4)


def recorded_row(number: int) -> Row:
    parts = open_policy("mini")
    slot: dict[str, Any] = {t.name: np.zeros(t.shape, t.dtype) for t in parts.spec.slot_tensors}
    request = RowRequest(session="arm", sequence=number)
    observation = load_recordings()[number].observation(number)
    return Row(parts.preprocessor().write(observation, slot, request), slot)


def reference(card: MiniCard, rows: list[Row]) -> FloatArray:
    ops = NumpyOps(read_weights(SHIPPED, card.sizes))
    stacked: dict[str, Any] = {
        name: np.stack([row.tensors[name] for row in rows]) for name in rows[0].tensors
    }
    return structure.denoise(
        ops,
        card.sizes,
        card.num_steps,
        kv=structure.prefix(ops, card.sizes, stacked["image"], stacked["words"]),
        state=stacked["state"],
        noise=stacked["noise"],
        previous=stacked["previous_chunk"],
        hold=np.zeros((len(rows), card.sizes.horizon, 1), np.float32),
    )
