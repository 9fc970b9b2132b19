"""The worker process: sockets, the clock and the models around a :class:`WorkerLoop`.

One thread waits for everything at once: gateways, lanes, the loader, the next instant the scheduler
asked for. Whatever is there when it wakes happens in one instant and leads to one decision.

Start reading at :meth:`_Worker.run`.
"""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import TypeAlias

from takt.core.profile import Profile
from takt.errors import ConfigError
from takt.link.listener import Listener, listen
from takt.link.messages import (
    AskStats,
    Cancel,
    Drain,
    GatewayHello,
    GatewayMessage,
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
)
from takt.runtime.inbox import Inbox
from takt.runtime.lanes import CpuLanes
from takt.runtime.launches import Completed, Lanes
from takt.runtime.loader import Loader, LoaderEvent
from takt.runtime.loop import WorkerLoop
from takt.runtime.models import LoadedModel, measured_profile
from takt.runtime.paced_device import PacedDevice
from takt.runtime.peers import Peer, Peers
from takt.runtime.shelf import Shelf
from takt.runtime.trace_file import TraceFile
from takt.schema.commands import AskLife, Command, CountRobots, DriveIn, LoadModel, UnloadModel
from takt.units import MILLISECOND, SECOND, Nanos, to_seconds

__all__ = ["Announce", "run_worker"]

log = logging.getLogger(__name__)

Announce: TypeAlias = Callable[[Mapping[str, object]], None]
"""Told of each change of the worker's state, for the supervisor."""

_PROGRESS_EVERY: Nanos = 50 * MILLISECOND
"""A gateway looks for hung workers in whole seconds; one report per start and end of a launch would
wake it three more times per request."""
_BRIEF_IN_A_ROW = 2
"""Brief launches that may follow each other before the sockets are looked at again: enough for one
request's two stages."""
_FLUSH_WITHIN: Nanos = SECOND
"""How long a drained worker waits for gateways to read their last answers."""


def run_worker(
    config: WorkerConfig,
    listening: socket.socket | None,
    stop: int,
    *,
    commands: Inbox[Command] | None = None,
    announce: Announce = lambda _: None,
    clock: Callable[[], Nanos] = time.monotonic_ns,
) -> None:
    """Serve until ``stop`` is readable, then finish what is under way.

    Args:
        config: The worker.
        listening: Socket gateways connect to; None: bind the configured address.
        stop: Descriptor that becomes readable when the worker is to drain.
        commands: What the supervisor asks for meanwhile.
        announce: Told of each change of state.
        clock: Monotonic, in nanoseconds, and the same clock as the gateways'.

    Raises:
        ConfigError: The address is taken, or a core cannot be used.
    """
    listener = Listener(listen(config.address) if listening is None else listening)
    worker = _Worker(config, listener, stop, commands, announce=announce, clock=clock)
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
        commands: Inbox[Command] | None,
        *,
        announce: Announce,
        clock: Callable[[], Nanos],
    ) -> None:
        self._config = config
        self._announce = announce
        self._clock = clock
        self._inbox: Inbox[Completed | LoaderEvent] = Inbox()
        self._measured = config.measured()
        self._paced: PacedDevice | None = None
        self._lanes: Lanes
        if config.paced is None:
            self._lanes = CpuLanes(config.placement, self._inbox.post, clock=clock)
        else:
            self._paced = PacedDevice(config.paced, config.paced_seed)
            self._lanes = self._paced.open_lanes(self._take_completed, clock=clock)
        self._loader = Loader(config, self._lanes.call, self._inbox.post, clock)
        self._trace = None if config.trace_path is None else TraceFile(config.trace_path)
        self._loop = WorkerLoop(self._lanes, trace=self._trace)
        self._shelf = Shelf(
            config,
            self._loader,
            profile=self._profile,
            tell=lambda message: self._peers.send_all(message),
            greet=lambda: self._peers.send_all(self._hello()),
            announce=announce,
            change=lambda changed: self._events.append(changed),
        )
        self._events: list[LoopEvent] = []
        """What has happened since the last step."""
        self._switching_to: DriveIn | None = None
        """A formation that has not been said to be in force yet."""
        self._wake_at: Nanos | None = None
        self._progress_at: Nanos | None = None
        self._leave_by: Nanos | None = None
        self._is_draining = False
        self._selector = selectors.DefaultSelector()
        self._peers = Peers(listener, self._selector, self._take, self._lose)
        self._selector.register(self._inbox, selectors.EVENT_READ, self._hear_inbox)
        self._selector.register(stop, selectors.EVENT_READ, partial(self._drain, stop))
        if commands is not None:
            take_commands = partial(self._take_commands, commands)
            self._selector.register(commands, selectors.EVENT_READ, take_commands)
        if self._paced is not None:
            self._selector.register(self._paced.timer, selectors.EVENT_READ, self._paced.on_timer)

    def run(self) -> None:
        """Go from instant to instant until drained."""
        self._announce({"event": "listening", "address": self._config.address})
        self._loader.start()
        while not self._may_leave():
            for key, mask in self._selector.select(self._timeout()):
                key.data(mask)
            self._step()
            for _ in range(_BRIEF_IN_A_ROW):
                if self._inbox.is_empty:
                    break
                self._step()
            self._report_progress()

    def close(self) -> None:
        """Give everything back."""
        self._loader.stop()
        self._lanes.close()
        if self._paced is not None:
            self._paced.close()
        self._shelf.close()
        self._peers.close("the worker has drained")
        self._selector.close()
        if self._trace is not None:
            self._trace.close()

    # An instant

    def _timeout(self) -> float | None:
        if self._events or not self._inbox.is_empty:
            return 0
        instants = [self._wake_at, self._progress_at, self._leave_by]
        first = min((instant for instant in instants if instant is not None), default=None)
        return None if first is None else max(0.0, to_seconds(first - self._clock()))

    def _step(self) -> None:
        self._take_inbox()
        now = self._clock()
        if not self._events and (self._wake_at is None or now < self._wake_at):
            return
        events, self._events = self._events, []
        before = self._loop.launches_started + self._loop.launches_finished
        self._wake_at = self._loop.step(events, now).wake_at
        if self._shelf.is_leaving:
            self._shelf.let_go(self._loop.models)
        if self._switching_to is not None and not self._loop.awaits_change:
            self._say_switched(self._switching_to)
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
            models=self._shelf.offers,
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

    # Lanes and models

    def _take_completed(self, completed: Completed) -> None:
        self._events.append(completed)

    def _hear_inbox(self, _: int) -> None:
        self._inbox.acknowledge()

    def _take_inbox(self) -> None:
        for event in self._inbox.take():
            match event:
                case Completed():
                    self._events.append(event)
                case _:
                    self._shelf.take(event)

    def _take_commands(self, commands: Inbox[Command], _: int) -> None:
        commands.acknowledge()
        for command in commands.take():
            match command:
                case AskLife():
                    self._announce({"event": "lives"})
                case LoadModel(model):
                    self._shelf.load(model)
                case UnloadModel(name):
                    self._shelf.unload(name)
                case DriveIn():
                    self._drive_in(command)
                case CountRobots():
                    pass  # gateways know them

    def _drive_in(self, command: DriveIn) -> None:
        try:
            config = self._config.driven(command)
        except ConfigError as error:
            self._announce({"event": "formation_refused", "reason": str(error)})
            return
        self._shelf.drive(config)
        self._switching_to = command
        if not self._events and not self._loop.awaits_change:
            self._say_switched(command)  # no model serves yet: it holds from the first one on

    def _say_switched(self, command: DriveIn) -> None:
        self._switching_to = None
        self._announce({"event": "formation_switched", **asdict(command)})

    def _profile(self, models: tuple[LoadedModel, ...]) -> Profile:
        scheduled = [loaded.model for loaded in models]
        # Lanes are told what they take, whatever the scheduler is to believe.
        table = None if self._paced is None else self._paced.pace(scheduled)
        if self._measured is not None:
            return self._measured.profile_for(scheduled)
        return table or measured_profile(models, self._config.placement)

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
