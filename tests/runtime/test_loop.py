"""What the loop says about each request, and when it lets go of slots."""

import json

import msgspec
import numpy as np
import pytest
from tests.core.driving import model_of
from tests.runtime.driving import Rig, only

from takt.core.request import Stage
from takt.core.trace import replay
from takt.link.messages import Outcome, Reply, SlotRef, StageTimes
from takt.runtime.events import Arrived, Cancelled, DrainAsked, GatewayLost
from takt.runtime.trace_file import split_traces
from takt.testing.gateway import FakeGateway
from takt.testing.network import FakeNetwork


def changed(arrived: Arrived, **fields: object) -> Arrived:
    return arrived._replace(submit=msgspec.structs.replace(arrived.submit, **fields))


def test_a_request_is_answered_with_the_chunk_of_its_own_row() -> None:
    rig = Rig()
    first = rig.submit(session="a", value=1.0)
    second = rig.submit(session="b", value=2.0)

    rig.run_out()

    chunks = {reply.ref: reply.actions() for reply in only(rig.messages, Reply)}
    np.testing.assert_array_equal(chunks[first], np.full((3, 2), 1.0))
    np.testing.assert_array_equal(chunks[second], np.full((3, 2), 2.0))


def test_a_reply_says_where_the_time_went() -> None:
    rig = Rig()
    rig.submit(session="a")
    rig.clock.advance(4)
    ref = rig.submit(session="b")  # its prefix starts when the first lockstep ends, at 10

    rig.run_out()

    [reply] = [reply for reply in only(rig.messages, Reply) if reply.ref == ref]
    assert reply.times == StageTimes(waited=6, prefix=10, between=10, denoise=20)


def test_the_wait_counts_from_the_worker_and_not_from_the_robot() -> None:
    rig = Rig()
    rig.clock.advance(50)
    arrived = rig.arrival()

    rig.step(changed(arrived, age=30))
    rig.run_out()

    [reply] = only(rig.messages, Reply)
    assert reply.times == StageTimes(prefix=10, denoise=20)


def test_arrivals_of_an_instant_come_before_its_completions() -> None:
    rig = Rig(formation="monolithic")
    rig.submit(session="a")
    rig.advance(10)
    rig.clock.advance(20)

    rig.step(*rig.lanes.take_ended(), rig.arrival(session="b"))

    kinds = [json.loads(line)["event"] for line in rig.trace[-4:]]
    assert kinds == ["submit", "finish", "ended", "decide"]


def test_a_newer_observation_of_a_session_supersedes_the_one_that_waits() -> None:
    rig = Rig()
    rig.submit(session="busy")
    old = rig.submit(session="a")
    new = rig.submit(session="a")

    rig.run_out()

    assert rig.outcomes()[old] is Outcome.SUPERSEDED
    assert rig.outcomes()[new] is Outcome.SERVED


def test_sessions_of_two_gateways_with_one_name_do_not_meet() -> None:
    rig = Rig()
    other = FakeGateway(epoch=2)
    rig.submit(session="busy")
    rig.submit(session="arm")

    rig.step(other.arrive(rig.loaded(), rig.now, session="arm"))
    rig.run_out()

    assert Outcome.SUPERSEDED not in rig.outcomes().values()
    assert [source for source, _ in rig.said].count(other) == 1


def test_a_request_that_expires_is_answered() -> None:
    rig = Rig()
    rig.submit(session="busy")
    ref = rig.submit(session="late", expires_in=5)

    rig.run_out()

    [reply] = [reply for reply in only(rig.messages, Reply) if reply.ref == ref]
    assert reply.outcome is Outcome.EXPIRED
    assert "expired after waiting" in reply.detail


# Cancelling


def test_a_cancelled_request_that_waits_is_released_at_once() -> None:
    rig = Rig()
    rig.submit(session="busy")
    ref = rig.submit(session="a")

    rig.step(rig.gateway.cancel(ref))

    assert rig.released() == [ref]


@pytest.mark.parametrize("elapsed", [0, 10], ids=["prefix", "denoise"])
def test_a_cancelled_request_is_released_only_when_its_launch_has_ended(elapsed: int) -> None:
    rig = Rig()
    ref = rig.submit()
    rig.advance(elapsed)

    rig.advance(5, rig.gateway.cancel(ref))
    before = rig.released()
    rig.run_out()

    assert before == []
    assert rig.released() == [ref]
    assert rig.outcomes() == {}


def test_a_cancel_and_the_end_of_the_launch_in_one_instant_release_once() -> None:
    rig = Rig()
    ref = rig.submit()

    rig.advance(10, rig.gateway.cancel(ref))

    assert rig.released() == [ref]


def test_a_cancel_that_crosses_the_reply_is_ignored() -> None:
    rig = Rig()
    ref = rig.submit()
    rig.run_out()

    rig.step(Cancelled(rig.gateway, ref))

    assert rig.released() == []


def test_a_second_cancel_changes_nothing() -> None:
    rig = Rig()
    ref = rig.submit()
    rig.step(rig.gateway.cancel(ref))

    rig.step(Cancelled(rig.gateway, ref))
    rig.run_out()

    assert rig.released() == [ref]


def test_a_cancelled_row_keeps_its_cache_slot_while_a_lane_reads_it() -> None:
    rig = Rig(kv_slots=1)
    ref = rig.submit(session="a")
    rig.step(rig.gateway.cancel(ref))

    refused = rig.submit(session="b")
    rig.advance(10)
    served = rig.submit(session="c")
    rig.run_out()

    assert rig.outcomes() == {refused: Outcome.BUSY, served: Outcome.SERVED}


def test_nobody_hears_of_the_requests_of_a_lost_gateway() -> None:
    rig = Rig()
    rig.submit(session="runs")
    rig.submit(session="waits")

    rig.step(GatewayLost(rig.gateway))
    rig.run_out()

    assert rig.said == []
    assert rig.loop.is_idle
    assert rig.loop.counters["cancelled"] == 2


# What cannot be computed


def test_a_failed_stage_fails_its_rows_with_a_sentence_and_the_next_is_served() -> None:
    rig = Rig()
    network = rig.loaded().network
    assert isinstance(network, FakeNetwork)
    network.faults[Stage.DENOISE] = RuntimeError("out of memory")
    failed = rig.submit()
    rig.run_out()
    network.faults.clear()

    served = rig.submit()
    rig.run_out()

    assert rig.outcomes() == {failed: Outcome.FAILED, served: Outcome.SERVED}
    [reply, _] = only(rig.messages, Reply)
    assert "the denoise stage of 'pi0' failed" in reply.detail


def test_a_row_that_is_not_finite_is_refused_and_its_batch_mates_are_served() -> None:
    rig = Rig()
    bad = rig.arrival(session="bad", value=float("nan"))
    good = rig.arrival(session="good", value=7.0)

    rig.step(bad, good)
    rig.run_out()

    assert rig.outcomes() == {
        bad.submit.ref: Outcome.NON_FINITE,
        good.submit.ref: Outcome.SERVED,
    }


def test_a_row_whose_slot_was_written_again_meanwhile_is_no_answer() -> None:
    rig = Rig()
    ref = rig.submit()
    rig.gateway.slot(ref, rig.loaded().slot_layout).stamp(SlotRef(ref.epoch, ref.slot, 9))

    rig.run_out()

    assert rig.outcomes() == {ref: Outcome.STALE_SLOT}


@pytest.mark.parametrize(
    ("fields", "outcome", "says"),
    [
        ({"model": "pi9"}, Outcome.UNKNOWN_MODEL, "ready: pi0"),
        ({"ref": SlotRef(1, 0, 77)}, Outcome.STALE_SLOT, "generation 77"),
        ({"ref": SlotRef(1, 900, 1)}, Outcome.STALE_SLOT, "slot 900"),
        ({"layout": 5}, Outcome.FAILED, "layout"),
        ({"row": {}}, Outcome.FAILED, "missing"),
    ],
)
def test_a_malformed_submit_gets_a_typed_outcome(
    fields: dict[str, object], outcome: Outcome, says: str
) -> None:
    rig = Rig()

    rig.step(changed(rig.arrival(), **fields))
    rig.run_out()

    [reply] = only(rig.messages, Reply)
    assert reply.outcome is outcome
    assert says in reply.detail


def test_a_repeated_submit_is_answered_once() -> None:
    rig = Rig()
    arrived = rig.arrival()

    rig.step(arrived, arrived)
    rig.run_out()

    assert len(only(rig.messages, Reply)) == 1
    assert rig.loop.counters["dropped_repeated"] == 1


# Other models, and the end


def test_without_a_model_a_request_is_refused() -> None:
    rig = Rig(is_ready=False)

    ref = rig.submit()

    assert rig.outcomes() == {ref: Outcome.UNKNOWN_MODEL}


def test_a_new_model_serves_when_what_is_under_way_has_ended_and_nobody_is_lost() -> None:
    rig = Rig(model_of("pi0"), model_of("act"), is_ready=False)
    rig.step(rig.setup_changed("pi0"))
    running = rig.submit("pi0", session="a")

    rig.step(rig.setup_changed("pi0", "act"))
    held_back = rig.submit("act", session="b")
    unwanted = rig.submit("act", session="c")
    rig.step(rig.gateway.cancel(unwanted))
    rig.run_out()

    assert rig.outcomes() == {running: Outcome.SERVED, held_back: Outcome.SERVED}
    assert rig.released() == [unwanted]
    assert len([*split_traces(f"{line}\n" for line in rig.trace)]) == 2


def test_the_setup_changes_even_if_the_last_request_of_the_old_one_expires() -> None:
    rig = Rig(model_of("pi0", denoise=(1,)), is_ready=False)
    rig.step(rig.setup_changed("pi0"))
    rig.submit(session="runs", expires_in=15)  # its prefix ends at 10
    rig.submit(session="next")
    rig.step(rig.setup_changed("pi0"))
    held_back = rig.submit(session="held back", expires_in=1_000)

    rig.run_out()

    assert rig.outcomes()[held_back] is Outcome.SERVED
    assert rig.loop.is_idle


def test_a_draining_worker_finishes_what_is_under_way_and_refuses_the_rest() -> None:
    rig = Rig()
    running = rig.submit(session="a")

    rig.step(DrainAsked())
    refused = rig.submit(session="b")
    rig.run_out()

    assert rig.outcomes() == {running: Outcome.SERVED, refused: Outcome.DRAINING}
    assert rig.loop.is_idle


def test_a_gateway_that_drains_stops_nobody_else() -> None:
    rig = Rig()
    other = FakeGateway(epoch=2)

    rig.step(DrainAsked(rig.gateway))
    refused = rig.submit()
    rig.step(other.arrive(rig.loaded(), rig.now))
    rig.run_out()

    replies = {reply.ref.epoch: reply.outcome for reply in only(rig.messages, Reply)}
    assert replies == {refused.epoch: Outcome.DRAINING, 2: Outcome.SERVED}


# What is told


def test_progress_names_the_requests_that_went_into_a_launch_once() -> None:
    rig = Rig()
    ref = rig.submit()

    first, second = rig.loop.progress(rig.gateway), rig.loop.progress(rig.gateway)
    rig.run_out()

    assert first is not None
    assert (first.launches_started, first.launches_finished, first.running) == (1, 0, (ref,))
    assert second is not None
    assert second.running == ()
    assert rig.loop.progress(rig.gateway) is None, "nothing of this gateway is under way"


def test_the_counters_count_every_request_once() -> None:
    rig = Rig()
    rig.submit(session="a")
    rig.submit(session="a")
    rig.submit(session="a")
    rig.run_out()

    counters = rig.loop.counters

    assert counters["submitted"] == 3
    assert counters["served"] == 2
    assert counters["superseded"] == 1
    assert (counters["launches_prefix"], counters["rows_prefix"]) == (2, 2)


def test_the_trace_of_a_run_replays() -> None:
    rig = Rig()
    for number in range(5):
        rig.submit(session=f"{number % 2}", due_in=30)
        rig.advance(3)
    rig.run_out()

    assert list(replay(rig.trace)) == rig.trace
    assert len(rig.trace) > 20
