"""An answer to an observation, read from a reply and checked.

What a robot is about to execute is looked at first: a reply without a chunk of finite numbers is
an error and no answer. Everything else in a reply is information, and a server that leaves it out
or spells it oddly is understood all the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from takt.errors import WireError
from takt.units import Nanos, ms
from takt.wire.limits import Limits
from takt.wire.openpi import decode_reply
from takt.wire.openpi_options import OPTIONS_KEY

__all__ = ["ActionArray", "Answer", "checked_actions", "read_answer"]

ActionArray: TypeAlias = NDArray[Any]
"""A chunk, shape ``(horizon, action_dim)``, or one action of it, shape ``(action_dim,)``."""

_MAX_MS = 1e9
_CHUNK_RANK = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What the server answered, and how long that took.

    Durations are of one clock each, so the clocks of robot and server need not agree.
    """

    actions: ActionArray
    """Shape ``(horizon, action_dim)``, in the policy's units; finite, read-only."""
    round_trip: Nanos
    """From sending the observation to the last byte of the answer, on the robot's clock."""
    server: Nanos | None = None
    """From arrival to reply, on the server's clock; None when it did not say."""
    policy: Nanos | None = None
    """In the policy itself; None when the server did not say."""
    stages: Mapping[str, Nanos] = field(default_factory=dict[str, Nanos])
    """By name of the stage; empty when the server did not say."""
    sequence: int | None = None
    """Number of the observation that is answered; None from a server that does not count."""
    model_digest: str | None = None
    """Digest of the weights that made it; None when the server does not say, or has none."""
    chunking: str | None = None
    """What became of a :class:`~takt.client.leftover.Leftover`: ``guided``, or ``none`` and why;
    None when no leftover was sent."""
    sent_bytes: int = 0
    """Of the observation, as it went over the network; 0 when it went over none."""
    raw_bytes: int = 0
    """What the observation would have had with every image as it was handed over."""
    values: Mapping[str, object] = field(default_factory=dict[str, object])
    """The whole reply by the server's own keys."""

    @property
    def network(self) -> Nanos | None:
        """What the network took both ways: the round trip less the server's own time."""
        return None if self.server is None else max(0, self.round_trip - self.server)

    @property
    def is_guided(self) -> bool:
        """Whether the chunk continues the leftover that was sent."""
        return self.chunking == "guided"


def read_answer(
    message: str | bytes, *, round_trip: Nanos, limits: Limits, digest: str | None = None
) -> Answer:
    """Read a reply.

    Args:
        message: A text message as ``str``, a binary one as bytes.
        round_trip: How long it took to come.
        limits: What it may ask for.
        digest: That of the model, where the reply does not say another.

    Raises:
        RefusedError: The server answered with an error.
        WireError: The reply holds no chunk of finite numbers.
    """
    values = decode_reply(message, limits).values
    ours = _mapping(values, OPTIONS_KEY)
    stages = {name: _duration(took) for name, took in _mapping(ours, "stages_ms").items()}
    sequence = ours.get("sequence")
    return Answer(
        actions=checked_actions(values.get("actions")),
        round_trip=round_trip,
        server=_duration(_mapping(values, "server_timing").get("infer_ms")),
        policy=_duration(_mapping(values, "policy_timing").get("infer_ms")),
        stages={name: took for name, took in stages.items() if took is not None},
        sequence=sequence if isinstance(sequence, int) else None,
        model_digest=_text(ours, "model_digest") or digest,
        chunking=_text(ours, "chunking"),
        values=values,
    )


def checked_actions(found: object) -> ActionArray:
    """The chunk, once it is known to be one.

    Raises:
        WireError: It is no array ``(horizon, action_dim)`` of finite numbers.
    """
    if not isinstance(found, np.ndarray):
        received = "no such key" if found is None else type(found).__name__
        raise WireError(f"actions: expected an array (horizon, action_dim), got {received}")
    actions = cast("ActionArray", found)
    if actions.dtype.kind not in "fiu" or actions.ndim != _CHUNK_RANK or actions.size == 0:
        raise WireError(
            "actions: expected numbers of shape (horizon, action_dim),"
            f" got {actions.dtype} of shape {actions.shape}"
        )
    if not np.isfinite(actions).all():
        raise WireError("actions: expected finite numbers, got NaN or infinity")
    return actions


def _mapping(values: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = values.get(key)
    return cast("Mapping[str, object]", found) if isinstance(found, Mapping) else {}


def _text(values: Mapping[str, object], key: str) -> str | None:
    found = values.get(key)
    return found if isinstance(found, str) and found else None


def _duration(value: object) -> Nanos | None:
    plain = cast("object", value.item()) if isinstance(value, np.generic) else value
    if isinstance(plain, (int, float)) and 0 <= plain <= _MAX_MS:
        return ms(plain)
    return None
