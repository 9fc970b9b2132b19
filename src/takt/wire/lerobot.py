"""What LeRobot's asynchronous inference sends: policy setups, observations, actions.

LeRobot (0.3 to 0.6) puts pickles of its own dataclasses into gRPC messages
(:mod:`takt.wire.lerobot_messages`). They are read here without LeRobot, without torch and without
unpickling: :mod:`takt.wire.lerobot_pickle` writes down what a pickle asks for, and this module
takes the four classes it knows, with exactly the fields it knows. Nothing a client sends is ever
imported or called.

The module path of LeRobot's classes changed in 0.4. Clients find the classes of a reply by that
path, so it is remembered as the :class:`Spelling` of a setup or an observation.

A server calls :func:`decode_setup`, :func:`decode_observation` and :func:`encode_actions`; a client
of a stock server calls their opposites.

Start reading at :func:`decode_observation`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from takt.errors import UsageError, WireError
from takt.wire.lerobot_arrays import array_record, tensor_record, tensor_storage
from takt.wire.lerobot_features import LerobotFeature, plain_feature, read_features
from takt.wire.lerobot_objects import (
    ACTION,
    OBSERVATION,
    SETUP,
    LerobotMessage,
    LerobotValue,
    Spelling,
    object_record,
    plain,
    plain_dict,
)
from takt.wire.lerobot_pickle import shown_key
from takt.wire.lerobot_writing import (
    Instructions,
    float_bytes,
    integer_bytes,
    write_pickle,
)
from takt.wire.limits import Limits

__all__ = [
    "MAX_REPLY_BYTES",
    "LerobotActions",
    "LerobotObservation",
    "LerobotSetup",
    "decode_actions",
    "decode_observation",
    "decode_setup",
    "encode_actions",
    "encode_observation",
    "encode_setup",
]

MAX_REPLY_BYTES = 4 * 2**20
"""What LeRobot's clients accept of one message: gRPC's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LerobotSetup:
    """What a client says once, before its first observation."""

    policy_type: str
    """LeRobot's name of the architecture, for example ``smolvla``."""
    pretrained_name_or_path: str
    """The checkpoint the client wants. A name and no more: nothing is downloaded."""
    features: Mapping[str, LerobotFeature]
    """By key, with LeRobot's prefix ``observation.``, in the order of the client."""
    actions_per_chunk: int
    """The most actions that the client takes at once, 1 or more."""
    device: str = "cpu"
    """Where the client would like the policy to run."""
    rename_map: Mapping[str, str]
    """Keys of the robot to keys of the policy; empty from stock clients."""
    spelling: Spelling
    """How the client finds the classes of a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LerobotObservation:
    """What a robot saw at one instant."""

    timestamp: float
    """Seconds on the wall clock of the client."""
    timestep: int
    """Number of the control step, counted in actions."""
    must_go: bool
    """Whether the client has nothing left to execute."""
    values: Mapping[str, LerobotValue]
    """By the keys of the robot. Every number is a float, whether it came as a Python or numpy
    number or as an array of rank 0. Arrays are read-only views of the message where its alignment
    allows; 8-bit images always."""
    spelling: Spelling
    """How the client finds the classes of a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LerobotActions:
    """A chunk of actions as a client reads it."""

    actions: NDArray[np.float32]
    """Shape ``(n, action_dim)``."""
    timesteps: tuple[int, ...]
    """Number of the control step of every action."""
    timestamps: tuple[float, ...]
    """Seconds on the wall clock of the client, of every action."""
    spelling: Spelling


def decode_setup(data: bytes | memoryview, limits: Limits) -> LerobotSetup:
    """Decode the content of a ``PolicySetup``.

    Args:
        data: The pickle of a ``RemotePolicyConfig``.
        limits: What it may ask for; checked before memory is taken.

    Raises:
        WireError: The bytes are no such pickle, or a field is missing, unknown or of a wrong type.
        LimitError: It asks for more than ``limits`` allow.
    """
    message = LerobotMessage("policy setup", data, limits)
    spelling, fields = message.fields_of(message.value, SETUP)
    count = plain(fields["actions_per_chunk"], int, "policy setup.actions_per_chunk")
    if count < 1:
        raise WireError(f"policy setup.actions_per_chunk: expected 1 or more, got {count}")
    return LerobotSetup(
        policy_type=plain(fields["policy_type"], str, "policy setup.policy_type"),
        pretrained_name_or_path=plain(
            fields["pretrained_name_or_path"], str, "policy setup.pretrained_name_or_path"
        ),
        features=read_features(fields["lerobot_features"], message.account, "lerobot_features"),
        actions_per_chunk=count,
        device=plain(fields["device"], str, "policy setup.device"),
        rename_map=_rename_map(fields["rename_map"]),
        spelling=spelling,
    )


def decode_observation(data: bytes | memoryview, limits: Limits) -> LerobotObservation:
    """Decode the joined pieces of one ``SendObservations`` call.

    Args:
        data: The pickle of a ``TimedObservation``. It must not change while the result is in use.
        limits: What it may ask for; checked before memory is taken.

    Raises:
        WireError: The bytes are no such pickle, or a field is missing, unknown or of a wrong type.
        LimitError: It asks for more than ``limits`` allow.
        ObservationError: A value is of a kind that is refused: objects, structures, text arrays.
            Non-finite numbers are passed on; what they mean is the policy's to say.
    """
    message = LerobotMessage("observation", data, limits)
    spelling, fields = message.fields_of(message.value, OBSERVATION)
    values = plain_dict(fields["observation"], "observation")
    return LerobotObservation(
        timestamp=message.instant(fields["timestamp"]),
        timestep=message.timestep(fields["timestep"]),
        must_go=bool(message.number("must_go", fields["must_go"])),
        values={key: message.read(key, value) for key, value in values.items()},
        spelling=spelling,
    )


def decode_actions(data: bytes | memoryview, limits: Limits) -> LerobotActions:
    """Decode the content of an ``Actions`` that is not empty.

    Args:
        data: The pickle of a list of ``TimedAction``, in any form that LeRobot's servers and Takt
            write.
        limits: What it may ask for. Every action counts as an array and needs about ten values.

    Raises:
        WireError: The bytes are no such pickle, or the actions differ in width.
        LimitError: It asks for more than ``limits`` allow.
        ObservationError: An action is an array that is refused.
    """
    message = LerobotMessage("actions", data, limits)
    items = cast("list[object]", plain(message.value, list, "actions"))
    if not items:
        raise WireError("actions: expected a list of actions, got an empty one")
    rows = [message.fields_of(item, ACTION) for item in items]
    return LerobotActions(
        actions=_stacked([message.read("action", fields["action"]) for _, fields in rows]),
        timesteps=tuple(message.timestep(fields["timestep"]) for _, fields in rows),
        timestamps=tuple(message.instant(fields["timestamp"]) for _, fields in rows),
        spelling=rows[0][0],
    )


def encode_actions(
    actions: NDArray[np.float32],
    *,
    first_timestep: int,
    first_timestamp: float,
    period_s: float,
    spelling: Spelling,
) -> bytes:
    """Encode a chunk as a list of ``TimedAction`` with float32 torch tensors on the CPU.

    All tensors are views of one torch storage. A stock server sends the storage once per action,
    which makes large chunks larger than its own client accepts.

    Args:
        actions: Shape ``(n, action_dim)``, float32, in the order of the client's joints.
        first_timestep: Of the first action; those of the others follow without a gap.
        first_timestamp: Of the first action, in seconds on the wall clock of the client.
        period_s: Time between two actions, in seconds.
        spelling: Of the client's setup or observation.

    Raises:
        UsageError: The actions have another shape or dtype, or are none.
    """
    rows = cast("NDArray[Any]", actions)
    if rows.dtype != np.float32 or rows.ndim != _CHUNK_RANK or not rows.size:
        raise UsageError(f"expected a float32 (n, action_dim) chunk, got {rows.dtype} {rows.shape}")
    width = actions.shape[1]
    first = object_record(
        ACTION,
        spelling,
        timestamp=first_timestamp,
        timestep=first_timestep,
        action=tensor_record(tensor_storage(actions), offset=0, width=width),
    )
    later = [
        _later_action(
            timestamp=first_timestamp + row * period_s,
            timestep=first_timestep + row,
            offset=row * width,
            width=width,
        )
        for row in range(1, len(actions))
    ]
    return write_pickle([first, Instructions(b"".join(later))] if later else [first])


def encode_setup(setup: LerobotSetup) -> bytes:
    """Encode the content of a ``PolicySetup``, as LeRobot's client of that spelling does.

    Raises:
        UsageError: A rename map for LeRobot 0.3, which has none.
    """
    fields: dict[str, object] = {
        "policy_type": setup.policy_type,
        "pretrained_name_or_path": setup.pretrained_name_or_path,
        "lerobot_features": {key: plain_feature(value) for key, value in setup.features.items()},
        "actions_per_chunk": setup.actions_per_chunk,
        "device": setup.device,
    }
    if setup.spelling is not Spelling.SCRIPTS_SERVER:
        fields["rename_map"] = dict(setup.rename_map)
    elif setup.rename_map:
        raise UsageError("LeRobot 0.3 has no rename map; expected an empty one")
    return write_pickle(object_record(SETUP, setup.spelling, **fields))


def encode_observation(observation: LerobotObservation) -> bytes:
    """Encode an observation as LeRobot's client does.

    Raises:
        UsageError: A value that cannot be sent.
    """
    values = {
        key: array_record(value) if isinstance(value, np.ndarray) else value
        for key, value in observation.values.items()
    }
    return write_pickle(
        object_record(
            OBSERVATION,
            observation.spelling,
            timestamp=observation.timestamp,
            timestep=observation.timestep,
            observation=values,
            must_go=observation.must_go,
        )
    )


def _later_action(*, timestamp: float, timestep: int, offset: int, width: int) -> bytes:
    """What :func:`object_record` and ``write_pickle`` make of any action but the first.

    Written out because it is all that differs from row to row; guarded by
    ``tests/wire/test_lerobot.py``.
    """
    return b"".join(
        (
            b"h\x03)\x81\x94}\x94(h\x06",  # TimedAction, its state, "timestamp"
            float_bytes(timestamp),
            b"h\x07",  # "timestep"
            integer_bytes(timestep),
            b"h\x08h\x0b(h\x11",  # "action", _rebuild_tensor_v2, the storage
            integer_bytes(offset),
            integer_bytes(width),
            b"\x85\x94K\x01\x85\x94\x89h\x16)R\x94t\x94R\x94ub",  # stride, hooks, the calls
        )
    )


_CHUNK_RANK = 2


def _rename_map(value: object) -> dict[str, str]:
    place = "policy setup.rename_map"
    renamed = plain_dict(value, place)
    return {key: plain(name, str, f"{place}.{shown_key(key)}") for key, name in renamed.items()}


def _stacked(rows: list[LerobotValue]) -> NDArray[np.float32]:
    """The actions of a chunk as one array."""
    first = rows[0]
    for row in rows:
        if not isinstance(row, np.ndarray) or row.ndim != 1 or row.dtype != np.float32:
            raise WireError("actions.action: expected a float32 tensor of rank 1, got another")
        if not isinstance(first, np.ndarray) or len(row) != len(first):
            raise WireError("actions.action: expected actions of one width, got several")
    return np.stack(cast("list[NDArray[np.float32]]", rows))
