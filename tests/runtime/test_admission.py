"""A Submit is looked at before the scheduler hears of it; nonsense gets a typed outcome."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.driving import model_of

from takt.link.layout import SlotLayout
from takt.link.messages import Outcome, SlotRef, Submit
from takt.policies.interface import Placement
from takt.runtime.admission import UnservableError, open_row
from takt.runtime.models import load_model
from takt.schema.serving import ServedModel
from takt.testing.gateway import FakeGateway
from takt.testing.network import fake_model

MODEL = fake_model(model_of(holds=(0b11, 0b10)))
ROW = {"layout": 0, "state_dim": 4, "horizon": 3, "action_dim": 2}


def submit_of(gateway: FakeGateway, **fields: object) -> Submit:
    submit = gateway.arrive(MODEL, 0, value=5.0).submit
    return msgspec.structs.replace(submit, **fields)


def test_a_row_is_a_view_of_its_slot_with_the_sizes_of_its_header() -> None:
    gateway = FakeGateway()
    row = {**ROW, "layout": 1, "horizon": 2}

    held = open_row(gateway, submit_of(gateway, layout=1, row=row), MODEL)

    assert held.row.header.to_plain() == row
    np.testing.assert_array_equal(held.row.tensors["state"], [5, 0, 0, 0])
    assert held.is_current()


@pytest.mark.parametrize(
    ("fields", "outcome", "says"),
    [
        ({"ref": SlotRef(1, 0, 2)}, Outcome.STALE_SLOT, "does not hold generation 2"),
        ({"ref": SlotRef(2, 0, 1)}, Outcome.STALE_SLOT, "does not hold"),
        ({"ref": SlotRef(1, 64, 1)}, Outcome.STALE_SLOT, "the arena has 64"),
        ({"layout": 2}, Outcome.FAILED, r"expected one of 0..1"),
        ({"layout": 1}, Outcome.FAILED, "the same in message and row"),
        ({"row": {**ROW, "horizon": 0}}, Outcome.FAILED, "row.horizon: expected 1..3, got 0"),
        ({"row": {**ROW, "horizon": 4}}, Outcome.FAILED, "row.horizon"),
        ({"row": {**ROW, "action_dim": 3}}, Outcome.FAILED, "row.action_dim"),
        ({"row": {**ROW, "state_dim": 5}}, Outcome.FAILED, "row.state_dim"),
        ({"row": {**ROW, "state_dim": -1}}, Outcome.FAILED, "row.state_dim"),
        ({"row": {**ROW, "horizon": "3"}}, Outcome.FAILED, "row.horizon"),
        ({"row": {**ROW, "speed": 3}}, Outcome.FAILED, "row.speed"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_key_and_what_was_expected(
    fields: dict[str, object], outcome: Outcome, says: str
) -> None:
    gateway = FakeGateway()

    with pytest.raises(UnservableError, match=says) as caught:
        open_row(gateway, submit_of(gateway, **fields), MODEL)

    assert caught.value.outcome is outcome


def test_a_slot_in_the_layout_of_another_model_is_not_read() -> None:
    gateway = FakeGateway()
    submit = submit_of(gateway)
    gateway.slot(submit.ref, SlotLayout.of([("state", (3,), "<f4")])).stamp(submit.ref)

    with pytest.raises(UnservableError, match="same version"):
        open_row(gateway, submit, MODEL)


def test_a_chunk_that_no_reply_can_carry_is_refused_before_it_is_computed() -> None:
    served = ServedModel(name="echo", policy="echo")
    echo = load_model(served, Placement(kv_slots=16), lambda _, f: f(), lambda: 0)
    gateway = FakeGateway()
    row = {"layout": 0, "state_dim": 2048, "horizon": 1000, "action_dim": 2048}

    with pytest.raises(UnservableError, match="horizon \\* action_dim"):
        open_row(gateway, submit_of(gateway, row=row), echo)


@given(
    ref=st.builds(SlotRef, st.integers(0, 3), st.integers(0, 99), st.integers(0, 3)),
    layout=st.integers(0, 4),
    row=st.dictionaries(
        st.sampled_from([*ROW, "more"]), st.integers(-1, 6) | st.floats() | st.text(max_size=3)
    ),
)
def test_no_submit_raises_anything_else(ref: SlotRef, layout: int, row: dict[str, object]) -> None:
    gateway = FakeGateway()

    try:
        held = open_row(gateway, submit_of(gateway, ref=ref, layout=layout, row=row), MODEL)
    except UnservableError:
        return

    assert held.ref == SlotRef(1, 0, 1)
    assert held.row.header.layout == layout < 2
