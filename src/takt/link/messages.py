"""The messages of WorkerLink and their strict decoding.

Each message is a tagged array in MessagePack. Decoding checks types, counts and sizes before
anything is kept, and refuses what it does not know with a :class:`~takt.errors.WireError`; the
two directions have decoders of their own, so a worker that is sent a reply refuses it.

Times. A message never carries an instant of the request: it carries durations from ``sent``, the
instant at which the message was written on the sender's monotonic clock. On one host both ends
read the same clock, so ``sent + due_in`` is the exact instant (:meth:`Submit.times` with
``origin=submit.sent``). Between hosts the receiver passes the instant at which it received the
message instead and is late by the one-way delay, never wrong by the difference of two clocks.
That argument is the whole seam for a framed TCP link.

Start reading at :class:`Submit` and :class:`Reply`.
"""

from collections.abc import Mapping
from enum import IntEnum
from math import prod
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from takt.errors import WireError
from takt.units import Nanos

__all__ = [
    "LINK_VERSION",
    "MAX_CHUNK_BYTES",
    "AskStats",
    "Cancel",
    "Drain",
    "GatewayHello",
    "GatewayMessage",
    "ModelFailed",
    "ModelOffer",
    "ModelReady",
    "ModelUnloaded",
    "Outcome",
    "Progress",
    "Released",
    "Reply",
    "RowTimes",
    "SlotRef",
    "StageTimes",
    "Stats",
    "Submit",
    "WorkerHello",
    "WorkerMessage",
    "chunk_fields",
    "decode_from_gateway",
    "decode_from_worker",
    "encode",
]

LINK_VERSION = 1
"""Version of the messages; travels in every frame, and a peer of another version is refused."""
MAX_CHUNK_BYTES = 512 * 1024
"""Largest action chunk: 1000 steps of 128 float32 values."""

_Count = Annotated[int, Meta(ge=0)]
_Positive = Annotated[int, Meta(ge=1)]
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Sentence = Annotated[str, Meta(max_length=4000)]
_ChunkType = Literal["<f4", "<f8", "<f2"]
_Shape = Annotated[tuple[_Count, ...], Meta(max_length=4)]
_CHUNK_RANK = 2
"""A chunk is (horizon, action_dim)."""
_Scalar: TypeAlias = int | float | str
_RowHeader = Annotated[dict[_Name, _Scalar], Meta(max_length=32)]
_BatchSizes = Annotated[tuple[_Positive, ...], Meta(max_length=256)]


class Outcome(IntEnum):
    """How a request ended in the worker."""

    SERVED = 0
    FAILED = 1
    NON_FINITE = 2
    EXPIRED = 3
    SUPERSEDED = 4
    CANCELLED = 5
    BUSY = 6
    UNKNOWN_MODEL = 7
    DRAINING = 8
    STALE_SLOT = 9

    @property
    def code(self) -> str:
        """The code a robot is told (see :class:`~takt.errors.RefusedError`)."""
        if self in (Outcome.NON_FINITE, Outcome.STALE_SLOT):
            return "failed"
        return self.name.lower()


class SlotRef(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """One use of one slot of one gateway's arena; no two requests ever share a reference."""

    epoch: _Count
    """Random 64-bit number the gateway drew when it started."""
    slot: _Count
    """Place in the arena."""
    generation: _Count
    """Rises each time the slot is claimed."""


class _Message(
    msgspec.Struct, array_like=True, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What all messages share: an array with the tag first, no unknown fields."""


class GatewayHello(_Message, frozen=True, tag=1):
    """First message of a gateway; the arena's file descriptor travels beside it."""

    gateway: _Name
    epoch: _Count
    num_slots: _Positive
    slot_bytes: _Positive


class RowTimes(msgspec.Struct, frozen=True, kw_only=True):
    """When a request arrived, is due, was promised and expires, on the receiver's clock."""

    arrival: Nanos
    due: Nanos
    promise: Nanos
    expires: Nanos


class Submit(_Message, frozen=True, tag=2):
    """Serve the observation in a slot. Answered by exactly one Reply or, once cancelled, Released.

    ``session`` names the robot's session and feeds its noise together with ``seed`` and
    ``sequence``. Two gateways may use the same name: whoever compares sessions compares
    ``(ref.epoch, session)``.
    """

    ref: SlotRef
    model: _Name
    session: _Name
    sequence: _Count
    seed: _Count
    sent: Nanos
    age: _Count
    """Nanoseconds from arrival to ``sent``."""
    due_in: int
    """Nanoseconds from ``sent`` to due; negative when the robot's queue is dry."""
    promise_in: int
    """Nanoseconds from ``sent`` to arrival + slo less the session's network allowance."""
    expires_in: int
    """Nanoseconds from ``sent`` to expires."""
    layout: _Count = 0
    """Which captured layout (cameras, prompt bucket) the row needs."""
    row: _RowHeader = msgspec.field(default_factory=dict[str, _Scalar])
    """Small per-row values that are no tensor."""
    supersede: bool = True
    """Whether a request of the same session still waiting in the worker gives way to this one."""

    def times(self, *, origin: Nanos) -> RowTimes:
        """Instants of this request.

        Args:
            origin: ``self.sent`` when both ends share a clock, else the instant of receipt.
        """
        return RowTimes(
            arrival=origin - self.age,
            due=origin + self.due_in,
            promise=origin + self.promise_in,
            expires=origin + self.expires_in,
        )


class Cancel(_Message, frozen=True, tag=3):
    """The client has gone; the worker answers Released once it no longer reads the slot."""

    ref: SlotRef


class Drain(_Message, frozen=True, tag=4):
    """No new requests shall pass in either direction; those under way are finished."""

    reason: _Sentence = ""


class AskStats(_Message, frozen=True, tag=5):
    """Ask for a Stats message."""


class ModelOffer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a worker as the gateway must know it."""

    model: _Name
    state: Literal["loading", "ready", "failed"]
    spec: dict[str, Any]
    """The policy's spec as plain maps, lists, strings and numbers."""
    prefix_batches: _BatchSizes = ()
    """Captured prefix batch sizes."""
    denoise_batches: _BatchSizes = ()
    """Captured denoise batch sizes; empty for a single-pass policy."""
    reason: _Sentence = ""
    """Why the model failed."""


class WorkerHello(_Message, frozen=True, tag=20):
    """A worker's answer to the gateway's hello."""

    worker: _Name
    models: Annotated[tuple[ModelOffer, ...], Meta(max_length=256)]
    draining: bool = False


class ModelReady(_Message, frozen=True, tag=21):
    """The model is loaded and warm; its captured sizes are final."""

    offer: ModelOffer


class ModelFailed(_Message, frozen=True, tag=22):
    """The model could not be loaded; the worker's other models serve on."""

    model: _Name
    reason: _Sentence


class ModelUnloaded(_Message, frozen=True, tag=23):
    """The model is drained and gone from this worker."""

    model: _Name


class StageTimes(
    msgspec.Struct, array_like=True, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Where a request spent its time in the worker; the parts add up to the whole."""

    waited: _Count = 0
    """From the worker's receipt of Submit to the start of the prefix launch."""
    prefix: _Count = 0
    between: _Count = 0
    """From the end of the prefix launch to the start of the denoise launch."""
    denoise: _Count = 0
    finishing: _Count = 0
    """From the end of the last launch to Reply."""


class Reply(_Message, frozen=True, tag=24):
    """The one answer to a Submit: a chunk, or the reason why there is none."""

    ref: SlotRef
    outcome: Outcome
    chunk: Annotated[bytes, Meta(max_length=MAX_CHUNK_BYTES)] = b""
    shape: _Shape = ()
    """(horizon, action_dim); empty without a chunk."""
    dtype: _ChunkType = "<f4"
    detail: _Sentence = ""
    """For a person: what failed and what would work."""
    times: StageTimes = StageTimes()
    still_reading: bool = False
    """The worker still reads the slot (a refusal while a copy runs) and will say Released."""

    def actions(self) -> NDArray[np.floating]:
        """The chunk as a read-only array of ``shape``."""
        return np.frombuffer(self.chunk, np.dtype(self.dtype)).reshape(self.shape)


class Released(_Message, frozen=True, tag=25):
    """The worker no longer reads the slot."""

    ref: SlotRef


class Progress(_Message, frozen=True, tag=26):
    """Sign of life, sent when a launch starts or ends; a hung worker stops sending it."""

    launches_started: _Count
    launches_finished: _Count
    running: Annotated[tuple[SlotRef, ...], Meta(max_length=4096)] = ()
    """This gateway's requests that went from waiting into a launch since the last Progress."""


class Stats(_Message, frozen=True, tag=27):
    """Counters of the worker since its start, by name."""

    counters: Annotated[dict[_Name, _Count], Meta(max_length=1024)]


GatewayMessage: TypeAlias = GatewayHello | Submit | Cancel | Drain | AskStats
"""What a worker may receive."""
WorkerMessage: TypeAlias = (
    WorkerHello
    | ModelReady
    | ModelFailed
    | ModelUnloaded
    | Reply
    | Released
    | Progress
    | Drain
    | Stats
)
"""What a gateway may receive."""

_encoder = msgspec.msgpack.Encoder()
_from_gateway = msgspec.msgpack.Decoder(GatewayMessage)
_from_worker = msgspec.msgpack.Decoder(WorkerMessage)
# RecursionError: msgspec raises it for a spec nested past the interpreter's limit.
_DECODE_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def encode(message: GatewayMessage | WorkerMessage) -> bytes:
    """The message as bytes, ready for a channel."""
    return _encoder.encode(message)


def decode_from_gateway(body: bytes) -> GatewayMessage:
    """Read a message that a gateway sent.

    Raises:
        WireError: The bytes are not such a message.
    """
    try:
        return _from_gateway.decode(body)
    except _DECODE_ERRORS as error:
        raise _refusal("gateway", body, error) from error


def decode_from_worker(body: bytes) -> WorkerMessage:
    """Read a message that a worker sent.

    Raises:
        WireError: The bytes are not such a message, or a chunk's bytes do not fill its shape.
    """
    try:
        message = _from_worker.decode(body)
    except _DECODE_ERRORS as error:
        raise _refusal("worker", body, error) from error
    if isinstance(message, Reply):
        _check_chunk(message)
    return message


def chunk_fields(actions: NDArray[np.floating]) -> Mapping[str, Any]:
    """The fields ``chunk``, ``shape`` and ``dtype`` of a Reply for an array of actions."""
    little = actions.astype(actions.dtype.newbyteorder("<"), copy=False)
    return {"chunk": little.tobytes(), "shape": little.shape, "dtype": little.dtype.str}


def _check_chunk(reply: Reply) -> None:
    has_chunk = reply.outcome is Outcome.SERVED
    expected = prod(reply.shape) * np.dtype(reply.dtype).itemsize if has_chunk else 0
    if len(reply.chunk) != expected or has_chunk != (len(reply.shape) == _CHUNK_RANK):
        raise WireError(
            f"reply.chunk: expected {expected} bytes for outcome {reply.outcome.name}, shape "
            f"{reply.shape}, dtype {reply.dtype}, got {len(reply.chunk)}"
        )


def _refusal(sender: str, body: bytes, error: BaseException) -> WireError:
    return WireError(f"message of {len(body)} bytes from the {sender}: {error}")
