"""The openpi protocol, which is also Takt's own: MessagePack maps over WebSocket messages.

The server speaks first and sends its metadata. Then each binary message of the client is one
observation, as a plain map, and gets one answer: a map with ``actions``, or an error. Unmodified
openpi clients are served; a client that knows Takt adds the key ``takt``
(:mod:`takt.wire.openpi_options`) and gets it back in the reply.

These functions are pure. A door reads whole messages from its transport and calls
:func:`decode_observation`, :func:`~takt.wire.openpi_options.split_options`, then
:func:`encode_reply` in the dialect it was asked in, or
:func:`~takt.wire.openpi_errors.encode_error`. A client calls :func:`encode_observation` and
:func:`decode_reply`.

Start reading at :func:`decode_observation`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from takt.errors import UsageError, WireError
from takt.units import Nanos, to_ms
from takt.wire.limits import Account, Limits
from takt.wire.msgpack_arrays import ArrayReader, Dialect, spell_array
from takt.wire.msgpack_decoding import decode_values
from takt.wire.msgpack_encoding import encode_values
from takt.wire.openpi_errors import error_in_map, error_in_text
from takt.wire.openpi_options import OPTIONS_KEY, RequestOptions, options_map

__all__ = [
    "DecodedMessage",
    "ReplyTiming",
    "chunk_reply",
    "decode_metadata",
    "decode_observation",
    "decode_reply",
    "encode_metadata",
    "encode_observation",
    "encode_reply",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedMessage:
    """What a message holds, and how its sender spells arrays."""

    values: dict[str, object]
    """Read-only numpy arrays, numpy scalars, str, bytes, int, float, bool, ``None``, images that
    are not decoded yet, and lists and maps of them. Arrays are views of the message where alignment
    allows: 8-bit images always."""
    dialect: Dialect
    """The spelling to answer in; openpi's when the message holds no array."""
    sources: Sequence[tuple[NDArray[Any], memoryview]] = ()
    """Every array and the bytes of the message it was made from, in the order of the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyTiming:
    """How long an answer took, as durations on the server's clock."""

    policy: Nanos
    """In the policy's stages."""
    server: Nanos
    """From the arrival of the observation to the encoding of the reply."""
    previous_total: Nanos | None = None
    """From arrival to the last byte sent, of the previous reply of this connection."""
    stages: Mapping[str, Nanos] = field(default_factory=dict[str, Nanos])
    """By name of the stage; sent to clients that ask for timing."""


def decode_observation(data: bytes | memoryview, limits: Limits) -> DecodedMessage:
    """Decode what a client sent.

    Args:
        data: One whole binary message. It must not change while the result is in use.
        limits: What the message may ask for; checked before memory is taken.

    Returns:
        The observation, with the options under ``takt`` still in it.

    Raises:
        WireError: The bytes are not one MessagePack map with text keys that occur once.
        LimitError: The message asks for more than ``limits`` allow.
        ObservationError: An array is malformed or of a kind that is refused (objects, structures,
            complex).
    """
    account = Account(limits)
    arrays = ArrayReader(account)
    values = decode_values(data, account, arrays.read)
    if not isinstance(values, dict):
        raise WireError(f"message: expected a map, got {type(values).__name__}")
    return DecodedMessage(
        values=cast("dict[str, object]", values), dialect=arrays.dialect, sources=arrays.sources
    )


def encode_reply(values: Mapping[str, object], dialect: Dialect) -> bytes:
    """Encode an answer with an action chunk, see :func:`chunk_reply`.

    Args:
        values: Arrays, numbers, strings, and lists and maps of them. Clients that execute a chunk
            step by step take row after row of *every* array of a reply.
        dialect: The dialect of the observation.

    Raises:
        UsageError: A value that cannot be sent, or arrays that differ in their number of rows.
    """
    encoded = encode_values(values, partial(spell_array, dialect=dialect))
    rows = {len(array) if array.ndim else None for array in _arrays_in(values)}
    if len(rows) > 1 or None in rows:
        raise UsageError("every array of a reply must have one row per action of the chunk")
    return encoded


def chunk_reply(
    actions: NDArray[Any],
    *,
    timing: ReplyTiming,
    options: RequestOptions,
    chunking: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """The content of an answer with an action chunk.

    Args:
        actions: The chunk, shape ``(horizon, action_dim)``.
        timing: Sent as the stock server does, in milliseconds.
        options: What the request asked for. A stock client gets no key that a stock server would
            not send.
        chunking: For a request with a leftover, the model's digest and what became of it.
    """
    server_timing = {"infer_ms": to_ms(timing.server)}
    if timing.previous_total is not None:
        server_timing["prev_total_ms"] = to_ms(timing.previous_total)
    reply: dict[str, object] = {
        "actions": actions,
        "policy_timing": {"infer_ms": to_ms(timing.policy)},
        "server_timing": server_timing,
    }
    echoed: dict[str, object] = {}
    if options.sequence is not None:
        echoed["sequence"] = options.sequence
    if options.wants_timing:
        echoed["stages_ms"] = {name: to_ms(took) for name, took in timing.stages.items()}
    echoed |= chunking or {}
    return reply | {OPTIONS_KEY: echoed} if echoed else reply


def encode_observation(
    observation: Mapping[str, object], options: RequestOptions | None = None
) -> bytes:
    """Encode an observation as openpi's client does.

    Args:
        observation: Arrays, numbers, strings, and lists and maps of them, by the policy's keys.
        options: What to tell Takt beside it. Leave it out for a server that is not Takt.

    Raises:
        UsageError: A value that cannot be sent, or an observation that uses the key ``takt``.
    """
    if OPTIONS_KEY in observation:
        raise UsageError(f"the key {OPTIONS_KEY!r} is taken; pass options instead")
    written = {} if options is None else options_map(options)
    message = {**observation, OPTIONS_KEY: written} if written else observation
    return encode_values(message, partial(spell_array, dialect=Dialect.OPENPI))


def decode_reply(message: str | bytes | memoryview, limits: Limits) -> DecodedMessage:
    """Decode a server's answer.

    Args:
        message: A text message as ``str``, a binary one as bytes.
        limits: What the answer may ask for.

    Raises:
        RefusedError: The server answered with an error; of the class and with the code it names.
        WireError: The bytes are no answer of this protocol.
    """
    if isinstance(message, str):
        raise error_in_text(message)
    reply = decode_observation(message, limits)
    error = error_in_map(reply.values)
    if error is not None:
        raise error
    return reply


def encode_metadata(metadata: Mapping[str, object]) -> bytes:
    """Encode the message with which a server greets.

    Raises:
        UsageError: A value that cannot be sent.
    """
    return encode_values(metadata, partial(spell_array, dialect=Dialect.OPENPI))


def decode_metadata(data: bytes | memoryview, limits: Limits) -> dict[str, object]:
    """Decode the message with which a server greets.

    Raises:
        WireError: The bytes are no MessagePack map, or beyond ``limits``.
        ObservationError: An array is malformed.
    """
    return decode_observation(data, limits).values


# Recursion is safe here: values that were encoded are not deep.
def _arrays_in(value: object) -> Iterator[NDArray[Any]]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping):
        for inner in cast("Mapping[object, object]", value).values():
            yield from _arrays_in(inner)
    elif isinstance(value, (list, tuple)):
        for inner in cast("list[object]", value):
            yield from _arrays_in(inner)
