"""Which session a robot goes on with after a connection or a server was lost.

A LeRobot client that loses its server comes back from another port, says nothing about itself and
goes on sending observations. What a session is known by is kept in a :class:`SessionRecord`; the
*candidates* are the records that no connection uses. An address names nobody (robots share one
behind a router), so it only narrows the candidates, as does the timestep, which a robot never
turns back. The robot then gets what all candidates have in common, in a new session: no chunk, no
predicted timestep and no noise is inherited.

Pure rules. Start reading at :func:`resume`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from takt.errors import RefusedError
from takt.session.features import RobotFeatures

__all__ = ["CannotResumeError", "OnlyModel", "Resumed", "SessionRecord", "resume"]

_MAX_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """What a session is known by after it has ended."""

    address: str
    """Address of its robot, without the port."""
    model: str
    """Model that it asked for."""
    features: RobotFeatures
    """What its robot sends."""
    actions_per_chunk: int
    """Longest chunk its robot takes."""
    spelling: str
    """How its robot's version of LeRobot names the classes of a reply."""
    last_timestep: int = 0
    """Largest timestep seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlyModel:
    """The one model a server has, for a robot of which nothing is known."""

    name: str
    features: RobotFeatures
    """What this robot sends, told from its observation; it fits the model."""
    actions_per_chunk: int
    spelling: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """What a session without a handshake begins with."""

    model: str
    features: RobotFeatures
    actions_per_chunk: int
    spelling: str
    used: str | None
    """Key of the record that the session takes the place of; None: there was none."""


class CannotResumeError(RefusedError):
    """The robot must connect again with a handshake."""

    code = "no_session"


_Records: TypeAlias = Mapping[str, SessionRecord]


def resume(
    candidates: _Records,
    *,
    address: str,
    timestep: int,
    keys: Iterable[str],
    only_model: OnlyModel | None,
) -> Resumed:
    """Find the session of a robot that goes on without a handshake.

    Args:
        candidates: Records that no connection uses, by key, oldest first.
        address: Where the robot is now.
        timestep: Of its observation.
        keys: Keys of its observation.
        only_model: The server's model, if it has one only and the observation fits it.

    Raises:
        CannotResumeError: The candidates disagree or there are none, and there is not one model
            only.
    """
    sent = frozenset(keys)
    fitting = {key: record for key, record in candidates.items() if record.features.are_in(sent)}
    fitting = _narrowed(fitting, {k for k, r in fitting.items() if r.address == address})
    fitting = _narrowed(fitting, {k for k, r in fitting.items() if r.last_timestep <= timestep})
    if fitting and _agree(fitting):
        key, record = next(iter(fitting.items()))
        return Resumed(
            model=record.model,
            features=record.features,
            actions_per_chunk=min(other.actions_per_chunk for other in fitting.values()),
            spelling=record.spelling,
            used=key,
        )
    if only_model is not None:
        return Resumed(
            model=only_model.name,
            features=only_model.features,
            actions_per_chunk=only_model.actions_per_chunk,
            spelling=only_model.spelling,
            used=None,
        )
    raise CannotResumeError(_sentence(fitting))


def _narrowed(records: _Records, kept: set[str]) -> dict[str, SessionRecord]:
    """The records of ``kept``; all of them when none would be left."""
    return {key: record for key, record in records.items() if key in kept or not kept}


def _agree(records: _Records) -> bool:
    return len({(record.model, record.features) for record in records.values()}) == 1


def _sentence(records: _Records) -> str:
    if not records:
        return (
            "this connection has no session and none that ended sent these keys;"
            " restart the robot client, which sends Ready and SendPolicyInstructions"
        )
    models = sorted({record.model for record in records.values()})[:_MAX_NAMED]
    return (
        "this connection has no session, and those it may go on with differ"
        f" (models: {', '.join(models)}); restart the robot client, which sends Ready and"
        " SendPolicyInstructions"
    )
