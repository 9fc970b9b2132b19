"""The worker process: sockets, the clock and the models around a :class:`WorkerLoop`.

One thread waits for everything at once: gateways, lanes, the loader, the next instant the scheduler
asked for. Whatever is there when it wakes happens in one instant and leads to one decision.

Start reading at :meth:`_Worker.run`.
"""

from __future__ import annotations

import gc
import logging
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from takt.link.listener import Listener, listen
from takt.link.messages import (
    AskStats,
    Cancel,
    Drain,
    GatewayHello,
    GatewayMessage,
    ModelFailed,
    ModelOffer,
    ModelReady,
    Stats,
    Submit,
    WorkerHello,
)
from takt.runtime.config import WorkerConfig
from takt.runtime.events import (
    Arrived,
    Cancelled,
    DrainAsked,
    GatewayLost,
    LoopEvent,
    SetupChanged,
)
from takt.runtime.inbox import Inbox
from takt.runtime.lanes import CpuLanes
from takt.runtime.launches import Completed
from takt.runtime.loader import AllLoaded, Loader, LoaderEvent, OfferChanged
from takt.runtime.loop import WorkerLoop
from takt.runtime.models import LoadedModel, measured_profile
from takt.runtime.peers import Peer, Peers
from takt.runtime.trace_file import TraceFile
from takt.units import MILLISECOND, SECOND, Nanos, to_seconds

__all__ = ["Announce", "run_worker"]

log = logging.getLogger(__name__)

Announce: TypeAlias = Callable[[Mapping[str, object]], None]
"""Told of each change of the worker's state, for the supervisor."""

_PROGRESS_EVERY: Nanos = 50 * MILLISECOND
"""A gateway looks for hung workers in whole seconds; one report per start and end of a launch would
wake it three more times per request."""
_FLUSH_WITHIN: Nanos = SECOND
"""How long a drained worker waits for gateways to read their last answers."""


def run_worker(
    config: WorkerConfig,
    listening: socket.socket | None,
    stop: int,
    *,
    announce: Announce = lambda _: None,
    clock: Callable[[], Nanos] = time.monotonic_ns,
) -> None:
    """Serve until ``stop`` is readable, then finish what is under way.

    Args:
        config: The worker.
        listening: Socket gateways connect to; None: bind the configured address.
        stop: Descriptor that becomes readable when the worker is to drain.
        announce: Told of each change of state.
        clock: Monotonic, in nanoseconds, and the same clock as the gateways'.

    Raises:
        ConfigError: The address is taken, or a core cannot be used.
    """
    listener = Listener(listen(config.address) if listening is None else listening)
    worker = _Worker(config, listener, stop, announce, clock)
    try:
        worker.run()
    finally:
        worker.close()


class _Worker:
    """One worker's sockets and state."""

    def __init__(
        self,
        config: WorkerConfig,
        listener: Listener,
        stop: int,
        announce: Announce,
        clock: Callable[[], Nanos],
    ) -> None:
        self._config = config
        self._announce = announce
        self._clock = clock
        self._inbox: Inbox[Completed | LoaderEvent] = Inbox()
        self._lanes = CpuLanes(config.placement, self._inbox.post, clock=clock)
        self._loader = Loader(config, self._lanes.call, self._inbox.post, clock)
        self._trace = None if config.trace_path is None else TraceFile(config.trace_path)
        self._loop = WorkerLoop(self._lanes, trace=self._trace)
        # Complete from the first hello on: a gateway must not take a model that is still to be
        # loaded for one that is not served here.
        self._offers = {
            model.name: ModelOffer(model=model.name, state="loading", spec={})
            for model in config.models
        }
        self._loaded: dict[str, LoadedModel] = {}
        self._events: list[LoopEvent] = []
        """What has happened since the last step."""
        self._wake_at: Nanos | None = None
        self._progress_at: Nanos | None = None
        self._leave_by: Nanos | None = None
        self._is_draining = False
        self._selector = selectors.DefaultSelector()
        self._peers = Peers(listener, self._selector, self._take, self._lose)
        self._selector.register(self._inbox, selectors.EVENT_READ, self._take_inbox)
        self._selector.register(stop, selectors.EVENT_READ, partial(self._drain, stop))

    def run(self) -> None:
        """Go from instant to instant until drained."""
        self._announce({"event": "listening", "address": self._config.address})
        self._loader.start()
        while not self._may_leave():
            for key, mask in self._selector.select(self._timeout()):
                key.data(mask)
            self._step()
            self._report_progress()

    def close(self) -> None:
        """Give everything back."""
        self._loader.stop()
        self._lanes.close()
        for loaded in self._loaded.values():
            loaded.network.close()
        self._peers.close("the worker has drained")
        self._selector.close()
        if self._trace is not None:
            self._trace.close()

    # An instant

    def _timeout(self) -> float | None:
        if self._events:
            return 0
        instants = [self._wake_at, self._progress_at, self._leave_by]
        first = min((instant for instant in instants if instant is not None), default=None)
        return None if first is None else max(0.0, to_seconds(first - self._clock()))

    def _step(self) -> None:
        now = self._clock()
        if not self._events and (self._wake_at is None or now < self._wake_at):
            return
        events, self._events = self._events, []
        before = self._loop.launches_started + self._loop.launches_finished
        self._wake_at = self._loop.step(events, now).wake_at
        for source, message in self._loop.take_messages():
            assert isinstance(source, Peer)
            self._peers.send(source, message)
        after = self._loop.launches_started + self._loop.launches_finished
        if after != before and self._progress_at is None:
            self._progress_at = now + _PROGRESS_EVERY

    def _report_progress(self) -> None:
        if self._progress_at is None or self._clock() < self._progress_at:
            return
        self._progress_at = None
        for peer in self._peers:
            progress = self._loop.progress(peer)
            if progress is not None:
                self._peers.send(peer, progress)

    # Gateways

    def _take(self, peer: Peer, message: GatewayMessage) -> None:
        match message:
            case Submit():
                self._events.append(Arrived(peer, message))
            case Cancel():
                self._events.append(Cancelled(peer, message.ref))
            case GatewayHello():
                self._peers.send(peer, self._hello())
            case Drain():
                self._events.append(DrainAsked(peer))
            case AskStats():
                self._peers.send(peer, Stats(counters=self._counters()))

    def _lose(self, peer: Peer) -> None:
        self._events.append(GatewayLost(peer))

    def _hello(self) -> WorkerHello:
        return WorkerHello(
            worker=self._config.name,
            models=tuple(self._offers.values()),
            draining=self._is_draining,
        )

    def _counters(self) -> dict[str, int]:
        dropped = self._peers.num_dropped()
        return {
            **self._loop.counters,
            **{f"dropped_{drop.value}": count for drop, count in dropped.items()},
            "unfinished": self._loop.unfinished,
            "gateways": len(self._peers),
        }

    # Models

    def _take_inbox(self, _: int) -> None:
        for event in self._inbox.take():
            match event:
                case Completed():
                    self._events.append(event)
                case OfferChanged(offer, loaded):
                    self._change_offer(offer, loaded)
                case AllLoaded():
                    self._be_ready()

    def _change_offer(self, offer: ModelOffer, loaded: LoadedModel | None) -> None:
        self._offers[offer.model] = offer
        if loaded is not None:
            self._serve(loaded)
            self._peers.send_all(ModelReady(offer=offer))
            self._announce({"event": "model_ready", "model": offer.model})
        elif offer.state == "failed":
            self._peers.send_all(ModelFailed(model=offer.model, reason=offer.reason))
            event = {"event": "model_failed", "model": offer.model, "reason": offer.reason}
            self._announce(event)

    def _serve(self, loaded: LoadedModel) -> None:
        self._loaded[loaded.model.name] = loaded
        models = tuple(self._loaded.values())
        profile = measured_profile(models, self._config.placement)
        setup = self._config.setup(tuple(served.model for served in models), profile)
        self._events.append(SetupChanged(setup, dict(self._loaded)))

    def _be_ready(self) -> None:
        # What loading left behind lives as long as the process. Out of the collector's sight it
        # costs no request the tens of milliseconds of a full collection.
        gc.collect()
        gc.freeze()
        states = {name: offer.state for name, offer in self._offers.items()}
        self._announce({"event": "ready", "models": states})

    # The end

    def _drain(self, stop: int, _: int) -> None:
        self._selector.unregister(stop)
        self._is_draining = True
        self._loader.stop()
        self._events.append(DrainAsked())
        self._peers.send_all(Drain(reason="the worker shuts down"))
        self._announce({"event": "draining", "unfinished": self._loop.unfinished})

    def _may_leave(self) -> bool:
        if not self._is_draining or self._events or not self._loop.is_idle:
            return False
        if not any(peer.link.channel.backlog_bytes for peer in self._peers):
            return True
        now = self._clock()
        if self._leave_by is None:
            self._leave_by = now + _FLUSH_WITHIN
        return now >= self._leave_by
