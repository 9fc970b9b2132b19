import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import LimitError, UsageError, WireError
from takt.wire.lerobot_messages import (
    ObservationAssembler,
    TransferState,
    decode_actions_message,
    decode_observation_message,
    decode_policy_setup_message,
    encode_actions_message,
    encode_observation_message,
    encode_policy_setup_message,
    split_observation,
)

BEGIN, MIDDLE, END = TransferState.BEGIN, TransferState.MIDDLE, TransferState.END


@given(st.sampled_from(TransferState), st.binary(max_size=300))
def test_messages_survive_the_wire(state: TransferState, data: bytes) -> None:
    message = encode_observation_message(state, data)

    assert decode_observation_message(message) == (state, data)
    assert decode_policy_setup_message(encode_policy_setup_message(data)) == data
    assert decode_actions_message(encode_actions_message(data)) == data


def test_the_bytes_are_those_of_protocol_buffers() -> None:
    assert encode_observation_message(END, b"ab") == b"\x08\x03\x12\x02ab"
    assert encode_policy_setup_message(bytes(300))[:3] == b"\x0a\xac\x02"


def test_an_empty_chunk_has_no_bytes_like_an_empty_message() -> None:
    assert encode_actions_message(b"") == b""
    assert decode_actions_message(b"") == b""


def test_content_is_not_copied() -> None:
    message = encode_observation_message(END, b"image")

    assert decode_observation_message(message)[1].obj is message


def test_unknown_fields_are_skipped_and_the_last_of_several_wins() -> None:
    unknown = b"\x18\x96\x01" + b"\x21" + bytes(8) + b"\x2d" + bytes(4) + b"\x32\x01x"

    assert decode_observation_message(b"\x12\x01a" + unknown + b"\x08\x03\x12\x01b") == (END, b"b")


@pytest.mark.parametrize("state", [4, 127])
def test_a_state_that_the_enumeration_lacks_is_unknown(state: int) -> None:
    assert decode_observation_message(bytes((0x08, state)))[0] is TransferState.UNKNOWN


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x12\x05abc", "5 more bytes, got 3"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "more bytes, got 0"),
        (b"\x12" + b"\xff" * 11, "a number that goes on"),
        (b"\x12", "a number that goes on"),
        (b"\x13", "wire type of 0, 1, 2 or 5, got 3"),
        (b"\x0a\x01a", "the type of field 1"),
        (b"\x10\x01", "the type of field 2"),
        (b"\x11" + bytes(8), "the type of field 2"),
    ],
)
def test_bytes_that_are_no_message_are_refused(message: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=f"^Observation: expected .*{reason}"):
        decode_observation_message(message)


def test_a_message_of_many_fields_is_refused() -> None:
    with pytest.raises(LimitError, match="at most 64 fields"):
        decode_observation_message(b"\x18\x00" * 65)


@given(st.binary(max_size=60))
def test_noise_is_refused_or_decoded(noise: bytes) -> None:
    try:
        state, fragment = decode_observation_message(noise)
    except WireError:
        return
    assert len(fragment) < max(len(noise), 1)
    assert state in TransferState


@pytest.mark.parametrize(
    ("size", "states"),
    [(1, [END]), (4, [END]), (5, [BEGIN, END]), (8, [BEGIN, END]), (9, [BEGIN, MIDDLE, END])],
)
def test_an_observation_is_cut_as_lerobot_cuts_it(size: int, states: list[TransferState]) -> None:
    assert [state for state, _ in split_observation(bytes(size), 4)] == states


def test_an_empty_observation_cannot_be_cut() -> None:
    with pytest.raises(UsageError, match="cannot cut 0 bytes"):
        list(split_observation(b""))


@given(st.binary(min_size=1, max_size=200), st.integers(1, 50))
def test_the_pieces_of_an_observation_are_joined_again(data: bytes, piece_bytes: int) -> None:
    assembler = ObservationAssembler(len(data), limit_fragments=200)

    *early, joined = [assembler.add(*piece) for piece in split_observation(data, piece_bytes)]
    assembler.finish()

    assert joined == data
    assert early == [None] * len(early)
    assert assembler.buffered_bytes == 0


def test_a_single_piece_is_handed_on_without_a_copy() -> None:
    joined = ObservationAssembler(10).add(END, data := b"whole")

    assert joined is not None
    assert joined.obj is data


def test_a_second_begin_starts_anew() -> None:
    assembler = ObservationAssembler(10)
    assembler.add(BEGIN, b"lost")
    assembler.add(BEGIN, b"ke")

    assert assembler.add(END, b"pt") == b"kept"


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ([MIDDLE], "expected BEGIN, or END when there is one piece, got MIDDLE"),
        ([TransferState.UNKNOWN], "expected BEGIN, MIDDLE or END, got UNKNOWN"),
        ([BEGIN, TransferState.UNKNOWN], "expected BEGIN, MIDDLE or END, got UNKNOWN"),
        ([END, END], "expected nothing after END, got END"),
        ([BEGIN, END, BEGIN], "expected nothing after END, got BEGIN"),
    ],
)
def test_pieces_out_of_order_are_refused(states: list[TransferState], reason: str) -> None:
    assembler = ObservationAssembler(10)
    for state in states[:-1]:
        assembler.add(state, b"x")

    with pytest.raises(WireError, match=reason):
        assembler.add(states[-1], b"x")


@pytest.mark.parametrize("states", [[], [BEGIN], [BEGIN, MIDDLE]])
def test_a_call_that_ends_early_is_refused(states: list[TransferState]) -> None:
    assembler = ObservationAssembler(10)
    for state in states:
        assembler.add(state, b"x")

    with pytest.raises(WireError, match=f"the end of the call after {len(states)} pieces"):
        assembler.finish()


def test_pieces_beyond_the_limit_are_refused_and_not_kept() -> None:
    assembler = ObservationAssembler(10)
    assembler.add(BEGIN, bytes(6))

    with pytest.raises(LimitError, match="at most 10 bytes in all pieces, got 11"):
        assembler.add(MIDDLE, bytes(5))

    assert assembler.buffered_bytes == 6


def test_empty_pieces_are_counted() -> None:
    assembler = ObservationAssembler(10, limit_fragments=3)
    for _ in range(3):
        assembler.add(BEGIN, b"")

    with pytest.raises(LimitError, match="at most 3 pieces, got 4"):
        assembler.add(BEGIN, b"")
