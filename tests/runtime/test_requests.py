"""The answer to a request that has ended."""

import numpy as np
import pytest
from tests.core.driving import model_of

from takt.core.request import Phase
from takt.core.timeline import Outcome as Ending
from takt.link.messages import Outcome, StageTimes
from takt.runtime.admission import open_row
from takt.runtime.launches import Failure
from takt.runtime.requests import AdmittedRequest, reply_to
from takt.testing.gateway import FakeGateway
from takt.testing.network import fake_model


def request_of() -> AdmittedRequest:
    gateway, model = FakeGateway(), fake_model(model_of())
    held = open_row(gateway, gateway.arrive(model, 0).submit, model)
    return AdmittedRequest(
        source=gateway, held=held, model="pi0", kv_slot=0, arrival=100, received=130
    )


def ending_of(phase: Phase, queue: int = 2_000_000) -> Ending:
    return Ending(1, phase, 0, queue, 10, 20, 30)


def test_a_chunk_comes_with_its_times() -> None:
    request = request_of()
    request.chunk = np.arange(6, dtype=np.float32).reshape(3, 2)

    reply = reply_to(request, ending_of(Phase.SERVED, queue=50))

    np.testing.assert_array_equal(reply.actions(), request.chunk)
    assert reply.times == StageTimes(waited=20, prefix=10, between=20, denoise=30)


@pytest.mark.parametrize(
    ("phase", "outcome", "says"),
    [
        (Phase.EXPIRED, Outcome.EXPIRED, "expired after waiting for 2.0 ms"),
        (Phase.SUPERSEDED, Outcome.SUPERSEDED, "newer observation"),
    ],
)
def test_a_refusal_says_why(phase: Phase, outcome: Outcome, says: str) -> None:
    reply = reply_to(request_of(), ending_of(phase))

    assert (reply.outcome, reply.chunk) == (outcome, b"")
    assert says in reply.detail


def test_a_failure_is_told_in_the_words_of_the_lane() -> None:
    request = request_of()
    request.failure = Failure(Outcome.NON_FINITE, "not finite")

    reply = reply_to(request, ending_of(Phase.FAILED))

    assert (reply.outcome, reply.detail) == (Outcome.NON_FINITE, "not finite")
