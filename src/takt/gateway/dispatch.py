"""Which worker gets a request, and what becomes of requests whose worker is gone.

Every request that has a slot is here: it is submitted to the replica with least under way, its
reply is matched by (epoch, slot, generation), and when a worker dies it is sent once more to
another replica or answered ``worker_lost``. Nothing here knows sessions.

Start reading at :meth:`Dispatcher.submit`.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeAlias

from takt.errors import RefusedError
from takt.gateway.config import WorkerAddress
from takt.gateway.models import GatewayModel, ModelState, Readiness
from takt.gateway.request import Answer, GatewayRequest
from takt.gateway.workers import Timers, WorkerPeer
from takt.link.arena import Arena
from takt.link.channel import Channel
from takt.link.ends import WorkerLink
from takt.link.messages import (
    Cancel,
    Outcome,
    Progress,
    Released,
    Reply,
    Stats,
    WorkerMessage,
)
from takt.link.slots import Drop, SlotTable
from takt.units import Nanos, to_ms

__all__ = ["Dispatcher", "EventSink", "Finished", "not_served"]

log = logging.getLogger(__name__)

EventSink: TypeAlias = Callable[[str, Mapping[str, object]], None]
"""Told what an operator or a supervisor may act on: the name of an event and its fields."""

Finished: TypeAlias = Callable[[GatewayRequest, "Answer | RefusedError"], None]
"""Called once with each request and what it ended with."""

_MOST_WORKERS_PER_REQUEST = 2
"""An observation that kills its worker shall not go through all of them."""
_BEST_FIRST: tuple[ModelState, ...] = ("ready", "loading", "lost", "failed")


class Dispatcher:
    """The requests of one gateway that have a slot.

    Args:
        workers: Whom to dial.
        models: The gateway's models.
        arena: Its slots.
        epoch: Number of this life of the gateway.
        gateway: Its name.
        seed: The server's seed, for the workers' logs.
        supersede: Whether workers let newer requests of a session replace those that wait.
        hang: Silence after which a worker that owes answers counts as hung.
        connect: Makes a channel to an address.
        timers: For pauses between dials.
        clock: Monotonic, in nanoseconds.
        on_finished: Called with each answer.
        on_freed: Called when a slot may have become free.
        on_event: Told of workers lost, back and hung, and of models.
    """

    def __init__(
        self,
        *,
        workers: Iterable[WorkerAddress],
        models: Mapping[str, GatewayModel],
        arena: Arena,
        epoch: int,
        gateway: str,
        seed: int,
        supersede: bool,
        hang: Nanos,
        connect: Callable[[str], Channel],
        timers: Timers,
        clock: Callable[[], Nanos],
        on_finished: Finished,
        on_freed: Callable[[], None],
        on_event: EventSink,
    ) -> None:
        self.counters: Counter[str] = Counter()
        """Messages dropped and why, retries, workers lost and hung."""
        self._slots: SlotTable[GatewayRequest] = SlotTable(arena.geometry.num_slots, epoch=epoch)
        self._models = models
        self._seed = seed
        self._supersede = supersede
        self._clock = clock
        self._on_finished = on_finished
        self._on_freed = on_freed
        self._on_event = on_event
        self._said: set[str] = set()
        self._away: set[str] = set()
        links = itertools.count()
        self._peers = [
            WorkerPeer(
                worker,
                models=models,
                owner=self,
                greet=partial(WorkerLink, arena=arena, gateway=gateway, epoch=epoch),
                connect=connect,
                new_link=partial(next, links),
                timers=timers,
                clock=clock,
                hang=hang,
            )
            for worker in workers
        ]

    # What a gateway asks for

    def start(self) -> None:
        """Dial every worker."""
        for peer in self._peers:
            peer.dial()

    def close(self) -> None:
        """Let go of every worker."""
        for peer in self._peers:
            peer.close()

    def drain(self, reason: str) -> None:
        """Tell every worker that no new requests come."""
        for peer in self._peers:
            peer.drain(reason)

    @property
    def num_free(self) -> int:
        """Slots that are free."""
        return self._slots.num_free

    @property
    def dropped(self) -> Mapping[Drop, int]:
        """Messages of workers that fitted no request."""
        return self._slots.dropped

    def serves(self, model: str) -> bool:
        """Whether some worker serves ``model`` now."""
        for peer in self._peers:  # noqa: SIM110 - a generator costs more than the work
            if peer.serves(model):
                return True
        return False

    def readiness(self, model: str) -> Readiness:
        """Whether some worker serves ``model``, and else the most hopeful reason."""
        found = [peer.readiness(model) for peer in self._peers]
        if not found:
            return Readiness(state="failed", reason="this gateway has no workers")
        return min(found, key=lambda readiness: _BEST_FIRST.index(readiness.state))

    def claim(self, request: GatewayRequest) -> None:
        """Give a request a slot. The caller has seen that one is free."""
        request.ref = self._slots.claim(request)

    def withdraw(self, request: GatewayRequest) -> None:
        """The row of a request could not be written: give back its slot."""
        assert request.ref is not None
        self._slots.withdraw(request.ref)

    def submit(self, request: GatewayRequest) -> None:
        """Send a request whose row is written; it is finished if nobody can serve it."""
        assert request.ref is not None
        peer = self._choose(request)
        if peer is None:
            self._give_up(request)
            return
        if not self._slots.submit(request.ref, link=peer.link_number):
            self._on_freed()  # it was cancelled while its row was written
            return
        request.peer = peer
        request.sent_to.append(peer.name)
        now = self._clock()
        peer.submit(request.submit_message(now, seed=self._seed, supersede=self._supersede))

    def cancel(self, request: GatewayRequest) -> None:
        """Nobody waits for a request any more."""
        if request.ref is None:
            return
        link = self._slots.cancel(request.ref)
        peer, request.peer = request.peer, None
        if link is not None and peer is not None:
            peer.cancel(Cancel(ref=request.ref))
        self._on_freed()

    # What workers say

    def heard(self, peer: WorkerPeer, message: WorkerMessage) -> None:
        """A worker said something about requests."""
        link = peer.link_number
        match message:
            case Reply():
                self._replied(peer, message)
            case Released(ref=ref):
                self._slots.release(ref, link=link)
                self._on_freed()
            case Progress(running=running):
                for ref in running:
                    self._slots.mark_running(ref, link=link)
            case Stats(counters=counters):
                log.info("worker counters: worker=%s %s", peer.name, counters)
            case _:
                log.warning("unexpected message: worker=%s kind=%s", peer.name, type(message))

    def lost(self, peer: WorkerPeer, link: int, reason: str) -> None:
        """A worker is gone: its requests go elsewhere or are answered."""
        self.counters["workers_lost"] += 1
        self._away.add(peer.name)
        log.warning("worker lost: worker=%s reason=%s", peer.name, reason)
        self._on_event("worker_lost", {"worker": peer.name, "reason": reason})
        for _, request in self._slots.lose_link(link):
            request.peer = None
            self._retry(request)
        self._on_freed()

    def hung(self, peer: WorkerPeer, silence: Nanos) -> None:
        """A worker owes answers and says nothing."""
        self.counters["workers_hung"] += 1
        self._on_event("worker_hung", {"worker": peer.name, "silence_ms": to_ms(silence)})

    def models_changed(self, peer: WorkerPeer) -> None:
        """A worker serves other models than before."""
        if peer.name in self._away and not peer.is_loading:
            self._away.discard(peer.name)
            self._on_event("worker_back", {"worker": peer.name})
        for model, reason in peer.failures.items():
            self._say_once(
                f"{peer.name}/{model}/{reason}",
                "model_failed",
                {"model": model, "worker": peer.name, "reason": reason},
            )
        states = {name: self.readiness(name).state for name in self._models}
        served = [name for name, state in states.items() if state == "ready"]
        if served and all(state in ("ready", "failed") for state in states.values()):
            self._say_once("ready", "ready", {"models": served})

    def _replied(self, peer: WorkerPeer, reply: Reply) -> None:
        request = self._slots.reply(
            reply.ref, link=peer.link_number, still_reading=reply.still_reading
        )
        if request is None:
            self._on_freed()
            return
        peer.settle()
        request.peer = None
        if reply.outcome is Outcome.SERVED:
            self._on_finished(request, request.answer_from(reply, self._clock()))
        else:
            sentence = reply.detail or f"the worker ended the request: {reply.outcome.name.lower()}"
            self._on_finished(request, RefusedError(sentence, code=reply.outcome.code))

    # Without a worker

    def _choose(self, request: GatewayRequest) -> WorkerPeer | None:
        fit = [
            peer
            for peer in self._peers
            if peer.serves(request.model.name) and peer.name not in request.sent_to
        ]
        return min(fit, key=lambda peer: peer.under_way, default=None)

    def _retry(self, request: GatewayRequest) -> None:
        may_go_on = len(request.sent_to) < _MOST_WORKERS_PER_REQUEST
        if may_go_on and self._choose(request) is not None:
            self.counters["retried"] += 1
            self.submit(request)
        else:
            self._give_up(request)

    def _give_up(self, request: GatewayRequest) -> None:
        assert request.ref is not None
        if request.sent_to:
            self._slots.cancel(request.ref)
            sentence = (
                f"worker {request.sent_to[-1]} was lost while it had this observation; "
                "send a new one"
            )
            error = RefusedError(sentence, code="worker_lost")
        else:
            self._slots.withdraw(request.ref)
            error = not_served(request.model.name, self.readiness(request.model.name))
        self._on_finished(request, error)

    def _say_once(self, key: str, event: str, fields: Mapping[str, object]) -> None:
        if key not in self._said:
            self._said.add(key)
            self._on_event(event, fields)


def not_served(model: str, readiness: Readiness) -> RefusedError:
    """Why a request for a model that is not ready is refused."""
    codes = {"loading": "busy", "lost": "worker_lost", "failed": "failed", "ready": "busy"}
    states = {
        "loading": f"model {model!r} is loading",
        "lost": f"model {model!r} has no worker now",
        "failed": f"model {model!r} could not be loaded",
        "ready": f"model {model!r} has no free worker",
    }
    because = f" ({readiness.reason})" if readiness.reason else ""
    advice = "" if readiness.state == "failed" else "; send a new observation in a moment"
    return RefusedError(states[readiness.state] + because + advice, code=codes[readiness.state])
