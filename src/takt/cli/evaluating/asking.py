"""Asks a server as its connection does, and remembers how long that took.

Start reading at :class:`MeteredConnection`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median_high
from typing import Protocol

from takt.client.answer import Answer
from takt.client.sender import AskingConnection
from takt.schema.spec import PolicySpec
from takt.units import Nanos

__all__ = ["Meter", "MeteredConnection", "ServerConnection"]

_NEWEST = 100
"""Observations that count for their usual size."""


class ServerConnection(AskingConnection, Protocol):
    """What is used of a :class:`~takt.client.connection.Connection`."""

    @property
    def model(self) -> str | None:
        """Name of the model that answers."""
        ...

    @property
    def spec(self) -> PolicySpec | None:
        """What the model takes and gives."""
        ...


@dataclass(frozen=True, kw_only=True)
class Meter:
    """What all connections of a run measured."""

    round_trips: list[Nanos] = field(default_factory=list[Nanos])
    """From sending each observation to its answer."""
    sent_bytes: list[int] = field(default_factory=list[int])
    """Of each observation, as it went over the network."""

    def clear(self) -> None:
        """Forget everything."""
        self.round_trips.clear()
        self.sent_bytes.clear()

    @property
    def usual_bytes(self) -> int | None:
        """Median size of an observation; None: not known."""
        newest = self.sent_bytes[-_NEWEST:]
        return (median_high(newest) or None) if newest else None


class MeteredConnection:
    """A connection that measures, and passes on the first actions of each chunk.

    Args:
        connection: What asks.
        meter: Where durations are kept.
        execute: Actions of a chunk to pass on; None: all.
    """

    def __init__(
        self, connection: ServerConnection, meter: Meter, *, execute: int | None = None
    ) -> None:
        self._connection = connection
        self._meter = meter
        self._execute = execute

    @property
    def model(self) -> str | None:
        """Name of the model that answers."""
        return self._connection.model

    @property
    def spec(self) -> PolicySpec | None:
        """What the model takes and gives."""
        return self._connection.spec

    def infer(
        self,
        observation: Mapping[str, object],
        *,
        due_in: Nanos | None = None,
        expires_in: Nanos | None = None,
    ) -> Answer:
        """Ask and wait."""
        answer = self._connection.infer(observation, due_in=due_in, expires_in=expires_in)
        self._meter.round_trips.append(answer.round_trip)
        self._meter.sent_bytes.append(answer.sent_bytes)
        if self._execute is None:
            return answer
        return replace(answer, actions=answer.actions[: self._execute])

    def close(self) -> None:
        """End the connection."""
        self._connection.close()
