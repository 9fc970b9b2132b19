"""Asks a server as its connection does, and remembers how long that took.

Start reading at :class:`MeteredConnection`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median_high
from typing import Protocol

from takt.cli.driving.outage import Outage
from takt.client.answer import Answer
from takt.client.errors import ConnectionLostError
from takt.client.leftover import Leftover
from takt.client.sender import AskingConnection, ContinuingConnection
from takt.schema.spec import PolicySpec
from takt.units import Nanos

__all__ = ["Meter", "MeteredConnection", "ServerConnection"]

_NEWEST = 100
"""Observations that count for their usual size."""


class ServerConnection(ContinuingConnection, AskingConnection, Protocol):
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
    asked: list[Nanos] = field(default_factory=list[Nanos])
    """When each observation was sent."""
    outages: list[Outage] = field(default_factory=list[Outage])
    """Times without a server, in order."""

    def clear(self) -> None:
        """Forget everything."""
        self.round_trips.clear()
        self.sent_bytes.clear()
        self.asked.clear()
        self.outages.clear()

    def served(self, answer: Answer, now: Nanos) -> None:
        """Keep what an answer tells."""
        self.round_trips.append(answer.round_trip)
        self.sent_bytes.append(answer.sent_bytes)
        if self._is_away:
            self.outages[-1] = replace(self.outages[-1], until=now)

    def lost(self, sent: Nanos) -> None:
        """There is no server that could answer what was sent at that instant."""
        if not self._is_away:
            self.outages.append(Outage(since=sent))

    @property
    def usual_bytes(self) -> int | None:
        """Median size of an observation; None: not known."""
        newest = self.sent_bytes[-_NEWEST:]
        return (median_high(newest) or None) if newest else None

    @property
    def _is_away(self) -> bool:
        return bool(self.outages) and self.outages[-1].until is None


class MeteredConnection:
    """A connection that measures, and passes on the first actions of each chunk.

    Args:
        connection: What asks.
        meter: Where durations are kept.
        execute: Actions of a chunk to pass on; None: all.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(
        self,
        connection: ServerConnection,
        meter: Meter,
        *,
        execute: int | None = None,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        self._connection = connection
        self._meter = meter
        self._execute = execute
        self._clock = clock
        self._is_closed = False

    @property
    def model(self) -> str | None:
        """Name of the model that answers."""
        return self._connection.model

    @property
    def spec(self) -> PolicySpec | None:
        """What the model takes and gives."""
        return self._connection.spec

    @property
    def takes_leftovers(self) -> bool:
        """Whether the model continues what a robot is executing."""
        return self._connection.takes_leftovers

    @property
    def model_digest(self) -> str | None:
        """Digest of the model's weights; None: nobody said."""
        return self._connection.model_digest

    def infer(
        self,
        observation: Mapping[str, object],
        *,
        due_in: Nanos | None = None,
        expires_in: Nanos | None = None,
        leftover: Leftover | None = None,
    ) -> Answer:
        """Ask and wait."""
        sent = self._clock()
        self._meter.asked.append(sent)
        try:
            answer = self._connection.infer(
                observation, due_in=due_in, expires_in=expires_in, leftover=leftover
            )
        except ConnectionLostError:
            if not self._is_closed:  # by us, at the end of an episode
                self._meter.lost(sent)
            raise
        self._meter.served(answer, self._clock())
        if self._execute is None:
            return answer
        return replace(answer, actions=answer.actions[: self._execute])

    def close(self) -> None:
        """End the connection."""
        self._is_closed = True
        self._connection.close()
