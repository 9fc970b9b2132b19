"""What a worker keeps of a request until it is answered, and the answer."""

from __future__ import annotations

from dataclasses import dataclass

from takt.core.launch import Lane
from takt.core.request import Phase
from takt.core.timeline import Outcome as Ending
from takt.link.messages import Outcome, Reply, StageTimes, chunk_fields
from takt.policies.interface import FloatArray
from takt.runtime.admission import RowSource
from takt.runtime.launches import Failure, HeldRow
from takt.units import Nanos, to_ms

__all__ = ["AdmittedRequest", "reply_to"]


@dataclass(slots=True, kw_only=True, eq=False)
class AdmittedRequest:
    """A request the scheduler knows, or one that has ended while a lane reads its row."""

    source: RowSource
    held: HeldRow
    model: str
    kv_slot: int
    arrival: Nanos
    """When its observation reached the gateway."""
    received: Nanos
    """When the worker heard of it."""
    lane: Lane | None = None
    """Lane that reads its row now."""
    has_ended: bool = False
    """It was cancelled while a lane read its row."""
    chunk: FloatArray | None = None
    failure: Failure | None = None


def reply_to(request: AdmittedRequest, ending: Ending) -> Reply:
    """The answer to a request that has ended without being cancelled."""
    ref = request.held.ref
    times = StageTimes(
        waited=ending.queue - (request.received - request.arrival),
        prefix=ending.prefix,
        between=ending.wait,
        denoise=ending.denoise,
    )
    if ending.phase is Phase.SERVED:
        assert request.chunk is not None
        fields = chunk_fields(request.chunk)
        return Reply(ref=ref, outcome=Outcome.SERVED, times=times, **fields)
    outcome, sentence = request.failure or _why_not(ending)
    return Reply(ref=ref, outcome=outcome, detail=sentence, times=times)


def _why_not(ending: Ending) -> Failure:
    """Why a request ended although no lane failed at it."""
    if ending.phase is Phase.SUPERSEDED:
        return Failure(Outcome.SUPERSEDED, "a newer observation of the session took its place")
    waited = to_ms(ending.queue + ending.wait)
    return Failure(Outcome.EXPIRED, f"expired after waiting for {waited:.1f} ms")
