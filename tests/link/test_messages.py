"""Round trips, strict decoding, typed errors, and times that survive a change of clock."""

import contextlib

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import WireError
from takt.link.messages import (
    MAX_CHUNK_BYTES,
    AskStats,
    Cancel,
    Drain,
    GatewayHello,
    GatewayMessage,
    ModelFailed,
    ModelOffer,
    ModelReady,
    ModelUnloaded,
    Outcome,
    Progress,
    Released,
    Reply,
    SlotRef,
    StageTimes,
    Stats,
    Submit,
    WorkerHello,
    WorkerMessage,
    chunk_fields,
    decode_from_gateway,
    decode_from_worker,
    encode,
)
from takt.units import ms

REF = SlotRef(2**64 - 1, 3, 7)
SUBMIT = Submit(
    ref=REF,
    model="mini",
    session="arm",
    sequence=5,
    seed=11,
    sent=ms(1000),
    age=ms(3),
    due_in=-ms(20),
    promise_in=ms(97),
    expires_in=ms(130),
    layout=1,
    row={"frozen_steps": 4, "delay": 0.5, "prompt": "fold"},
    supersede=False,
)
OFFER = ModelOffer(
    model="mini",
    state="ready",
    spec={"horizon": 16, "cameras": [{"name": "top", "size": [112, 112]}]},
    prefix_batches=(1, 2),
    denoise_batches=(1, 2, 4, 8),
)
CHUNK = np.arange(32, dtype=np.float32).reshape(16, 2)
REPLY = Reply(
    ref=REF,
    outcome=Outcome.SERVED,
    times=StageTimes(waited=1, prefix=2, between=3, denoise=4, finishing=5),
    **chunk_fields(CHUNK),
)
FROM_GATEWAY = [
    GatewayHello(gateway="g0", epoch=REF.epoch, num_slots=8, slot_bytes=4096),
    SUBMIT,
    Cancel(ref=REF),
    Drain(reason="SIGTERM"),
    AskStats(),
]
FROM_WORKER = [
    WorkerHello(worker="w0", models=(OFFER,)),
    ModelReady(offer=OFFER),
    ModelFailed(model="mini", reason="weights are cut short"),
    ModelUnloaded(model="mini"),
    REPLY,
    Reply(ref=REF, outcome=Outcome.EXPIRED, detail="expired 3 ms ago", still_reading=True),
    Released(ref=REF),
    Progress(launches_started=9, launches_finished=8, running=(REF,)),
    Drain(),
    Stats(counters={"launches": 9}),
]


@pytest.mark.parametrize("message", FROM_GATEWAY, ids=lambda message: type(message).__name__)
def test_a_worker_reads_what_a_gateway_wrote(message: GatewayMessage) -> None:
    assert decode_from_gateway(encode(message)) == message


@pytest.mark.parametrize("message", FROM_WORKER, ids=lambda message: type(message).__name__)
def test_a_gateway_reads_what_a_worker_wrote(message: WorkerMessage) -> None:
    assert decode_from_worker(encode(message)) == message


def test_the_chunk_comes_back_bit_for_bit_and_read_only() -> None:
    reply = decode_from_worker(encode(REPLY))
    assert isinstance(reply, Reply)

    actions = reply.actions()

    np.testing.assert_array_equal(actions, CHUNK)
    assert not actions.flags.writeable


def test_a_big_endian_chunk_is_sent_little_endian() -> None:
    fields = chunk_fields(CHUNK.astype(">f8"))

    assert fields["dtype"] == "<f8"
    assert Reply(ref=REF, outcome=Outcome.SERVED, **fields).actions()[1, 0] == 2.0


def test_messages_of_the_other_direction_are_refused() -> None:
    with pytest.raises(WireError, match="from the gateway"):
        decode_from_gateway(encode(REPLY))
    with pytest.raises(WireError, match="from the worker"):
        decode_from_worker(encode(SUBMIT))


@pytest.mark.parametrize(
    "fields",
    [
        {"shape": (16, 3)},
        {"shape": (32,)},
        {"shape": ()},
        {"dtype": "<f8"},
        {"outcome": Outcome.FAILED},
        {"chunk": b""},
        {"shape": (2**62, 4, 0)},
    ],
    ids=str,
)
def test_a_chunk_that_does_not_fill_its_shape_is_refused(fields: dict[str, object]) -> None:
    broken = msgspec.structs.replace(REPLY, **fields)

    with pytest.raises(WireError, match=r"reply\.chunk"):
        decode_from_worker(encode(broken))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x90",
        msgspec.msgpack.encode([99, 1]),
        msgspec.msgpack.encode({"type": 3}),
        msgspec.msgpack.encode([3, [1, 2]]),
        msgspec.msgpack.encode([3, [1, -2, 3]]),
        msgspec.msgpack.encode([3, [1, 2, 3], "more"]),
        msgspec.msgpack.encode([3, [1, 2.0, 3]]),
        encode(SUBMIT)[:-1],
        encode(msgspec.structs.replace(SUBMIT, model="")),
        encode(msgspec.structs.replace(SUBMIT, row={str(key): 1 for key in range(33)})),
        b"\x94\x01" + b"\x91" * 100_000,
    ],
    ids=range(13),
)
def test_what_is_no_message_is_refused_with_a_typed_error(body: bytes) -> None:
    with pytest.raises(WireError):
        decode_from_gateway(body)


def test_an_oversized_chunk_is_refused() -> None:
    huge = msgspec.structs.replace(
        REPLY, chunk=bytes(MAX_CHUNK_BYTES + 4), shape=(1, MAX_CHUNK_BYTES // 4 + 1)
    )

    with pytest.raises(WireError, match="length"):
        decode_from_worker(encode(huge))


def test_a_spec_nested_without_end_is_refused() -> None:
    nested: object = 1
    for _ in range(500):
        nested = [nested]
    body = encode(ModelReady(offer=msgspec.structs.replace(OFFER, spec={"a": nested})))
    deep = body.replace(b"\x91" * 500, b"\x91" * 200_000)

    with pytest.raises(WireError):
        decode_from_worker(deep)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_typed_error(body: bytes) -> None:
    for decode in (decode_from_gateway, decode_from_worker):
        with contextlib.suppress(WireError):
            decode(body)


@given(st.integers(0, 2**62), st.integers(-(2**61), 2**61), st.integers(-(2**61), 2**61))
def test_on_one_host_instants_come_back_exactly(sent: int, due: int, expires: int) -> None:
    submit = msgspec.structs.replace(SUBMIT, sent=sent, due_in=due, expires_in=expires)

    times = submit.times(origin=submit.sent)

    assert (times.due, times.expires) == (sent + due, sent + expires)


def test_between_hosts_only_durations_count() -> None:
    received = ms(77_000)

    times = SUBMIT.times(origin=received)

    assert times.arrival == received - ms(3)
    assert times.due == received - ms(20)
    assert times.promise == received + ms(97)
    assert times.expires == received + ms(130)


def test_every_outcome_but_served_has_a_code_a_robot_may_be_told() -> None:
    codes = {outcome.code for outcome in Outcome if outcome is not Outcome.SERVED}

    assert codes == {
        "failed",
        "expired",
        "superseded",
        "cancelled",
        "busy",
        "unknown_model",
        "draining",
    }
