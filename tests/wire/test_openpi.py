from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from takt.errors import LimitError, ObservationError, RefusedError, UsageError, WireError
from takt.units import ms
from takt.wire.limits import Limits
from takt.wire.msgpack_arrays import Dialect
from takt.wire.openpi import (
    ReplyTiming,
    chunk_reply,
    decode_metadata,
    decode_observation,
    decode_reply,
    encode_metadata,
    encode_observation,
    encode_reply,
)
from takt.wire.openpi_errors import encode_error
from takt.wire.openpi_options import ErrorForm, RequestOptions, split_options

LIMITS = Limits()
ARRAYS = hnp.arrays(
    st.sampled_from(["<f4", "<f8", "|u1", ">i4", "|b1", "<U3"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
RESERVED = {"__ndarray__", "__npgeneric__", "__image__", "nd", "complex", "takt"}
KEYS = st.text(max_size=12).filter(lambda key: key not in RESERVED)
OBSERVATIONS = st.dictionaries(
    KEYS,
    st.recursive(
        PLAIN | ARRAYS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=6,
)
CHUNK = np.arange(6, dtype=np.float32).reshape(3, 2)
TIMING = ReplyTiming(policy=ms(12.5), server=ms(20))


def same(left: Any, right: Any) -> bool:  # noqa: ANN401
    if isinstance(left, np.ndarray):
        return (
            left.dtype == right.dtype
            and left.shape == right.shape
            and left.tobytes() == (right.tobytes())
        )
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@pytest.mark.slow
@given(OBSERVATIONS)
def test_an_observation_survives_the_wire(observation: dict[str, object]) -> None:
    message = decode_observation(encode_observation(observation), LIMITS)

    assert same(message.values, observation)
    assert message.dialect is Dialect.OPENPI


@pytest.mark.slow
@given(st.dictionaries(KEYS, PLAIN | ARRAYS.filter(lambda a: a.ndim > 0 and len(a) == 2)))
def test_a_reply_survives_the_wire_in_every_dialect(reply: dict[str, object]) -> None:
    for dialect in Dialect:
        assert same(decode_reply(encode_reply(reply, dialect), LIMITS).values, reply)


@pytest.mark.parametrize("data", [b"\x01", b"\x90", b"\xc0", b"\xc4\x01a"])
def test_a_message_that_is_no_map_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match=r"^message: expected a map, got "):
        decode_observation(data, LIMITS)


def test_a_bare_array_is_no_observation() -> None:
    data = msgpack.packb({"nd": False, "type": "<f4", "data": bytes(4)})
    assert data is not None

    with pytest.raises(WireError, match="expected a map, got float32"):
        decode_observation(data, LIMITS)


def test_options_travel_beside_the_observation() -> None:
    options = RequestOptions(robot="arm-7", sequence=3, due_in=-ms(40), error_form=ErrorForm.MAP)

    message = decode_observation(encode_observation({"state": CHUNK}, options), LIMITS)
    observation, received = split_options(message.values)

    assert list(observation) == ["state"]
    assert received == options


def test_a_server_that_is_not_takt_sees_no_key_of_takt() -> None:
    assert "takt" not in decode_observation(encode_observation({"a": 1}), LIMITS).values
    assert encode_observation({"a": 1}, RequestOptions()) == encode_observation({"a": 1})


def test_an_observation_may_not_use_the_key_of_the_options() -> None:
    with pytest.raises(UsageError, match="the key 'takt' is taken"):
        encode_observation({"takt": 1})


@pytest.mark.parametrize("extra", [np.zeros(2), np.array(1.0), {"deep": [np.zeros((2, 3))]}])
def test_a_reply_whose_arrays_a_client_could_not_slice_together_is_refused(extra: object) -> None:
    with pytest.raises(UsageError, match="one row per action of the chunk"):
        encode_reply({"actions": CHUNK, "extra": extra}, Dialect.OPENPI)


def test_a_stock_client_gets_the_keys_a_stock_server_sends() -> None:
    reply = chunk_reply(CHUNK, timing=TIMING, options=RequestOptions())

    assert list(reply) == ["actions", "policy_timing", "server_timing"]
    assert reply["policy_timing"] == {"infer_ms": 12.5}
    assert reply["server_timing"] == {"infer_ms": 20.0}


def test_the_second_reply_of_a_connection_tells_how_long_the_first_took() -> None:
    timing = ReplyTiming(policy=ms(1), server=ms(2), previous_total=ms(3))

    reply = chunk_reply(CHUNK, timing=timing, options=RequestOptions())

    assert reply["server_timing"] == {"infer_ms": 2.0, "prev_total_ms": 3.0}


def test_a_client_that_counts_gets_its_number_back() -> None:
    reply = chunk_reply(CHUNK, timing=TIMING, options=RequestOptions(sequence=0))

    assert reply["takt"] == {"sequence": 0}


def test_a_client_that_asks_for_timing_gets_every_stage() -> None:
    timing = ReplyTiming(policy=ms(1), server=ms(2), stages={"prefix": ms(0.5), "denoise": ms(1)})

    reply = chunk_reply(CHUNK, timing=timing, options=RequestOptions(wants_timing=True))

    assert reply["takt"] == {"stages_ms": {"prefix": 0.5, "denoise": 1.0}}


@pytest.mark.parametrize("form", ErrorForm)
def test_an_error_that_a_server_answers_with_is_raised_at_the_client(form: ErrorForm) -> None:
    sent = RefusedError("the server is draining", code="draining")

    with pytest.raises(RefusedError, match=r"^the server is draining$") as caught:
        decode_reply(encode_error(sent, form), LIMITS)

    assert caught.value.code == "draining"


def test_a_reply_says_what_became_of_a_leftover() -> None:
    said = {"model_digest": "sha256:ab", "chunking": "guided"}
    timing = ReplyTiming(policy=1, server=2)

    reply = chunk_reply(
        np.zeros((2, 3)), timing=timing, options=RequestOptions(sequence=4), chunking=said
    )

    assert reply["takt"] == {"sequence": 4, **said}


def test_a_policy_may_reply_with_a_key_called_error() -> None:
    reply = decode_reply(encode_reply({"error": {"joint": 0.1}}, Dialect.OPENPI), LIMITS)

    assert reply.values == {"error": {"joint": 0.1}}


def test_metadata_survives_the_wire() -> None:
    metadata = {"reset_pose": [0.0, -1.5], "action_horizon": 10}

    assert decode_metadata(encode_metadata(metadata), LIMITS) == metadata


def test_a_client_is_protected_from_its_server_too() -> None:
    with pytest.raises(LimitError):
        decode_metadata(encode_metadata({"a": "x" * 100}), Limits(max_message_bytes=50))
    with pytest.raises(ObservationError):
        decode_reply(msgpack.packb({"actions": {"__ndarray__": True}}) or b"", LIMITS)
