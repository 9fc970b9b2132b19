"""The fake policy keeps the rules of a policy."""

import numpy as np
import pytest
from tests.core.driving import model_of

from takt.core.request import Stage
from takt.errors import RefusedError
from takt.schema.row import Row, RowHeader
from takt.testing import FakeDecoder, FakeNetwork, fake_model

HEADER = RowHeader(state_dim=4, horizon=2, action_dim=1)


def row_of(value: float) -> Row:
    return Row(HEADER, {"state": np.array([value, 0, 0, 0], np.float32)})


@pytest.fixture
def network() -> FakeNetwork:
    model = fake_model(model_of())
    assert isinstance(model.network, FakeNetwork)
    return model.network


def test_a_state_reaches_the_actions_through_its_cache_slot(network: FakeNetwork) -> None:
    rows = [row_of(1.0), row_of(2.0)]
    network.prefix(rows, size=2, layout=0, kv_slots=[5, 3])

    chunks = network.denoise(rows, size=2, layout=0, kv_slots=[3, 5])

    assert [float(chunk[0, 0]) for chunk in chunks] == [2.0, 1.0]


def test_a_single_pass_policy_answers_after_its_prefix() -> None:
    network = fake_model(model_of("act", denoise=())).network

    chunks = network.prefix([row_of(4.0)], size=1, layout=0, kv_slots=[0])

    assert chunks is not None
    assert float(chunks[0, 0, 0]) == 4.0


def test_a_stage_raises_what_it_is_told_to(network: FakeNetwork) -> None:
    network.faults[Stage.PREFIX] = ValueError("told to")

    with pytest.raises(ValueError, match="told to"):
        network.prefix([row_of(1.0)], size=1, layout=0, kv_slots=[0])


def test_life_and_lanes_are_remembered(network: FakeNetwork) -> None:
    network.load()
    network.warm()
    network.enter_lane(Stage.PREFIX)
    network.wait = 7

    assert network.is_loaded
    assert network.entered == [Stage.PREFIX]
    assert network.launch_time(Stage.DENOISE, 3) == 7
    network.close()
    assert not network.is_loaded


def test_the_decoder_cuts_to_the_row_and_refuses_what_is_not_finite() -> None:
    decoder = FakeDecoder()
    chunk = np.ones((3, 2), np.float32)

    assert decoder.decode(chunk, row_of(0.0)).shape == (2, 1)
    with pytest.raises(RefusedError, match="not finite"):
        decoder.decode(chunk * np.float32("inf"), row_of(0.0))


def test_layouts_and_sizes_of_the_card_are_those_of_the_model() -> None:
    model = fake_model(model_of(prefix=(1, 3), denoise=(2,), holds=(0b11, 0b10)), kv_slots=9)

    assert model.spec.prefix_sizes == (1, 3)
    assert model.spec.denoise_sizes == (2,)
    assert len(model.spec.layouts) == 2
    assert model.kv_slots == 9
