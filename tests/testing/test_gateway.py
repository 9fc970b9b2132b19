"""The fake gateway writes real slots and refuses what breaks the rules of the link."""

import numpy as np
import pytest
from tests.core.driving import model_of

from takt.errors import UsageError
from takt.link.messages import SlotRef
from takt.testing import FakeGateway, fake_model

MODEL = fake_model(model_of())


def test_an_arrival_has_its_row_in_its_slot() -> None:
    gateway = FakeGateway(epoch=3)

    arrived = gateway.arrive(MODEL, 50, session="s", value=2.5, due_in=10, layout=0)

    submit = arrived.submit
    view = gateway.slot(submit.ref, MODEL.slot_layout)
    np.testing.assert_array_equal(view.read(submit.ref)["state"], [2.5, 0, 0, 0])
    assert submit.times(origin=submit.sent).due == 60
    assert (submit.ref.epoch, submit.model, submit.session) == (3, "pi0", "s")


def test_a_gateway_without_free_slots_says_so() -> None:
    gateway = FakeGateway(num_slots=1)
    gateway.arrive(MODEL, 0)

    with pytest.raises(UsageError, match="no slot is free"):
        gateway.arrive(MODEL, 0)


def test_a_slot_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="the arena has 2"):
        FakeGateway(num_slots=2).slot(SlotRef(1, 2, 1), MODEL.slot_layout)


def test_a_cancelled_request_waits_for_its_release() -> None:
    gateway = FakeGateway(num_slots=1)
    ref = gateway.arrive(MODEL, 0).submit.ref

    cancelled = gateway.cancel(ref)
    before = gateway.table.num_free
    gateway.table.release(ref, link=1)

    assert cancelled.ref == ref
    assert (before, gateway.table.num_free) == (0, 1)
