"""One observation on its way through the gateway, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from takt.gateway.models import GatewayModel
from takt.gateway.workers import WorkerPeer
from takt.link.messages import Reply, SlotRef, Submit
from takt.schema.observation import Observation
from takt.schema.row import Chunking, Executing, RowHeader, RowRequest
from takt.session.session import Session
from takt.session.timing import Declared, Timing
from takt.units import Nanos

__all__ = ["Answer", "GatewayRequest", "Wanted"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wanted:
    """What a door asks for beside the observation; see ``GatewaySession.infer``."""

    model: str
    arrival: Nanos
    declared: Declared
    inferred_due: Nanos | None
    run: str | None
    sequence: int | None
    horizon: int | None
    chunking: Chunking | None
    executing: Executing | None = None
    is_lent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """An action chunk and how long each part of getting it took."""

    actions: NDArray[np.floating]
    """Shape ``(horizon, action_dim)``, read-only."""
    sequence: int
    """Number of the observation: the robot's own, else counted by its session."""
    arrival: Nanos
    """When the observation arrived."""
    answered: Nanos
    """When the worker's answer arrived."""
    stages: Mapping[str, Nanos]
    """Durations by name, in order; together they are ``answered - arrival``: ``decode``,
    ``wait`` (for a slot), ``preprocess``, ``link``, ``queue``, ``prefix``, ``between``,
    ``denoise``, ``finish``."""

    @property
    def policy(self) -> Nanos:
        """Time in the policy's own stages."""
        return self.stages["prefix"] + self.stages["denoise"]


@dataclass(slots=True, kw_only=True, eq=False)
class GatewayRequest:
    """One observation between its door and its answer. Instants are 0 until they are known."""

    session: Session[GatewayRequest]
    model: GatewayModel
    observation: Observation | None
    """Dropped once the row is written: it holds the whole message."""
    wanted: Wanted
    timing: Timing
    answer: asyncio.Future[Answer]
    offered: Nanos
    sequence: int = -1
    """Number within the session, for settling."""
    ref: SlotRef | None = None
    header: RowHeader | None = None
    peer: WorkerPeer | None = None
    """Worker that has it now."""
    is_settled: bool = False
    """Its session no longer waits for it."""
    taken: Nanos = 0
    written: Nanos = 0
    sent_to: list[str] = field(default_factory=list[str])
    """Names of the workers it was sent to."""

    def row_request(self, seed: int) -> RowRequest:
        """What goes into the row beside the observation."""
        wanted = self.wanted
        return RowRequest(
            session=wanted.run if wanted.run is not None else self.session.name,
            sequence=self.shown_sequence,
            seed=seed,
            horizon=wanted.horizon,
            chunking=wanted.chunking,
            executing=wanted.executing,
        )

    @property
    def shown_sequence(self) -> int:
        """Number of the observation that its robot knows."""
        return self.sequence if self.wanted.sequence is None else self.wanted.sequence

    def submit_message(self, now: Nanos, *, seed: int, supersede: bool) -> Submit:
        """The message that puts it into a worker's queues."""
        assert self.ref is not None
        assert self.header is not None
        timing = self.timing
        return Submit(
            ref=self.ref,
            model=self.model.name,
            # Two robots may choose the same name for their runs; the number keeps them apart.
            session=f"{self.session.name}#{self.session.number}",
            sequence=self.shown_sequence,
            seed=seed,
            sent=now,
            age=max(0, now - timing.arrival),
            due_in=timing.due - now,
            promise_in=timing.promise - now,
            expires_in=timing.expires - now,
            layout=self.header.layout,
            row={**self.header.to_plain()},
            supersede=supersede,
        )

    def answer_from(self, reply: Reply, now: Nanos) -> Answer:
        """The answer a worker's chunk makes."""
        times = reply.times
        worker = times.waited + times.prefix + times.between + times.denoise + times.finishing
        stages = {
            "decode": self.offered - self.timing.arrival,
            "wait": self.taken - self.offered,
            "preprocess": self.written - self.taken,
            "link": now - self.written - worker,
            "queue": times.waited,
            "prefix": times.prefix,
            "between": times.between,
            "denoise": times.denoise,
            "finish": times.finishing,
        }
        return Answer(
            actions=reply.actions(),
            sequence=self.shown_sequence,
            arrival=self.timing.arrival,
            answered=now,
            stages=stages,
        )
