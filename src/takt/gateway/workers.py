"""One worker as a gateway sees it, across all its lives.

A peer dials its worker, says hello, learns from the answer what is served, and dials again when
the link ends. With a supervisor the worker's address is always open: the dial succeeds at once and
the hello comes when a worker lives. Without one the dial is repeated with a growing pause.

A worker that owes answers and makes no progress (:mod:`takt.gateway.patience`) is taken for hung:
its link is ended as if it had died, and whoever watches is told, so that it can be killed.

Start reading at :meth:`WorkerPeer.dial`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from takt.errors import RefusedError
from takt.gateway.config import WorkerAddress
from takt.gateway.models import GatewayModel, Readiness, why_unfit
from takt.gateway.patience import Patience
from takt.link.asyncio_watch import AsyncioWatch
from takt.link.channel import Channel
from takt.link.ends import WorkerLink
from takt.link.messages import (
    Cancel,
    Drain,
    ModelFailed,
    ModelOffer,
    ModelReady,
    ModelUnloaded,
    Progress,
    Released,
    Reply,
    SlotRef,
    Submit,
    WorkerHello,
    WorkerMessage,
)
from takt.units import SECOND, Nanos, to_seconds

__all__ = ["PeerOwner", "TimerHandle", "Timers", "WorkerPeer"]

log = logging.getLogger(__name__)

_FIRST_PAUSE: Nanos = SECOND // 20
_LONGEST_PAUSE: Nanos = 2 * SECOND
_HELD_UP = 4
"""A check that comes later than a quarter of the patience says more of the gateway than of the
worker."""


class TimerHandle(Protocol):
    """A callback that waits."""

    def cancel(self) -> None:
        """Do not call back."""
        ...


class Timers(Protocol):
    """Calls back later; an event loop is one."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> TimerHandle:
        """Call back after ``delay`` seconds."""
        ...


class PeerOwner(Protocol):
    """Who is told what a worker says and what becomes of it."""

    def heard(self, peer: WorkerPeer, message: WorkerMessage) -> None:
        """A message that concerns requests came."""
        ...

    def lost(self, peer: WorkerPeer, link: int, reason: str) -> None:
        """A link ended; its requests are without a worker."""
        ...

    def hung(self, peer: WorkerPeer, silence: Nanos) -> None:
        """The worker counts as hung; :meth:`lost` follows."""
        ...

    def models_changed(self, peer: WorkerPeer) -> None:
        """What the worker serves has changed."""
        ...


class WorkerPeer:
    """One worker.

    Args:
        address: Where it is.
        models: The gateway's models, to compare with its offers.
        owner: Told what happens.
        greet: Says hello over a fresh channel.
        connect: Makes a channel to an address.
        new_link: Draws a number for a link.
        timers: For pauses and patience.
        clock: Monotonic, in nanoseconds.
        hang: Least time without progress that counts as hung.
    """

    def __init__(
        self,
        address: WorkerAddress,
        *,
        models: Mapping[str, GatewayModel],
        owner: PeerOwner,
        greet: Callable[[Channel], WorkerLink],
        connect: Callable[[str], Channel],
        new_link: Callable[[], int],
        timers: Timers,
        clock: Callable[[], Nanos],
        hang: Nanos,
    ) -> None:
        self.name = address.name
        self.link_number = -1
        """Number of the current link; no two links share one."""
        self.under_way = 0
        """Requests it owes an answer to."""
        self.is_up = False
        """Whether it has said hello over the current link."""
        self.has_been_up = False
        """Whether it had, over an earlier one."""
        self._address = address.address
        self._models = models
        self._owner = owner
        self._greet = greet
        self._connect = connect
        self._new_link = new_link
        self._timers = timers
        self._clock = clock
        self._patience = Patience(hang)
        self._link: WorkerLink | None = None
        self._watch: AsyncioWatch[WorkerMessage] | None = None
        self._served: dict[str, Readiness] = {}
        self._has_offered = False
        self._is_draining = False
        self._is_closed = False
        self._pause = _FIRST_PAUSE
        self._redial: TimerHandle | None = None
        self._check: TimerHandle | None = None
        self._check_at: Nanos = 0

    def dial(self) -> None:
        """Connect and say hello; on failure, try again after a pause."""
        self._redial = None
        try:
            link = self._greet(self._connect(self._address))
        except (RefusedError, OSError) as error:
            log.debug("worker not reached: worker=%s reason=%s", self.name, error)
            self._dial_later()
            return
        self._link = link
        self.link_number = self._new_link()
        self._watch = AsyncioWatch(link, on_message=self._on_message, on_end=self._on_end)

    def serves(self, model: str) -> bool:
        """Whether a request for ``model`` may be sent to it now."""
        served = self._served.get(model)
        return served is not None and served.state == "ready" and not self._is_draining

    @property
    def is_loading(self) -> bool:
        """Whether a model is still being loaded, or what it serves is not known yet."""
        return not self._has_offered or any(
            served.state == "loading" for served in self._served.values()
        )

    @property
    def failures(self) -> Mapping[str, str]:
        """Why models of this worker cannot be served, by name."""
        served = self._served.items()
        return {name: found.reason for name, found in served if found.state == "failed"}

    def readiness(self, model: str) -> Readiness:
        """Whether it serves ``model``, and why not."""
        if not self.is_up:
            return self._unreached()
        if self._is_draining:
            return Readiness(state="lost", reason=f"worker {self.name} is draining")
        if not self._has_offered:
            return self._unreached()  # a worker may say hello before it has opened its models
        return self._served.get(
            model, Readiness(state="failed", reason=f"worker {self.name} does not serve it")
        )

    def submit(self, message: Submit) -> bool:
        """Send a request; False if the link has ended, which is then being reported."""
        patience = self._patience
        patience.submitted(message.ref, message.sent + message.expires_in, message.sent)
        if self._check is None:
            self._check_after(patience.limit)
        self.under_way += 1
        return self._send(message)

    def wait_until(self, ref: SlotRef) -> Nanos:
        """How long a robot is made to wait for a request that is with this worker."""
        return self._patience.wait_until(ref)

    def cancel(self, message: Cancel) -> None:
        """Tell it that nobody waits for a request any more."""
        self.settle()
        self._send(message)

    def settle(self) -> None:
        """A request it owed has its answer."""
        self.under_way = max(0, self.under_way - 1)

    def drain(self, reason: str) -> None:
        """Tell it that no new requests come."""
        if self.is_up:
            self._send(Drain(reason=reason))

    def end(self, reason: str) -> None:
        """End the link as if the worker had died, and dial again."""
        if self._link is not None and self._watch is not None:
            self._watch.detach()
            self._link.channel.close(reason)
            self._on_end(reason)

    def close(self) -> None:
        """Let go of the worker for good."""
        self._is_closed = True
        for timer in (self._redial, self._check):
            if timer is not None:
                timer.cancel()
        self._redial = self._check = None
        if self._link is not None and self._watch is not None:
            self._watch.detach()
            self._link.channel.close()
            self._link = self._watch = None

    # The link

    def _send(self, message: Submit | Cancel | Drain) -> bool:
        if self._link is None:
            return False
        try:
            self._link.send(message)
        except RefusedError as error:
            # A worker that does not read its messages is as good as dead.
            self.end(str(error))
            return False
        return True

    def _on_message(self, message: WorkerMessage) -> None:
        now = self._clock()
        self._patience.heard(now)
        match message:
            case WorkerHello():
                self._greeted(message)
            case ModelReady(offer=offer):
                self._take_offer(offer)
            case ModelFailed(model=model, reason=reason):
                self._set_model(model, Readiness(state="failed", reason=reason))
            case ModelUnloaded(model=model):
                self._served.pop(model, None)
                self._owner.models_changed(self)
            case Drain():
                self._is_draining = True
                self._owner.models_changed(self)
            case _:
                self._settle_accounts(message, now)
                self._owner.heard(self, message)

    def _settle_accounts(self, message: WorkerMessage, now: Nanos) -> None:
        patience = self._patience
        match message:
            case Reply():
                if not message.still_reading:
                    patience.settled(message.ref)
                self._time_launches(message)
            case Released(ref=ref):
                patience.settled(ref)
            case Progress(running=running):
                patience.started(running, now)
            case _:
                pass

    def _greeted(self, hello: WorkerHello) -> None:
        self.is_up = True
        self._is_draining = hello.draining
        self._pause = _FIRST_PAUSE
        for offer in hello.models:
            self._take_offer(offer, announce=False)
        self._owner.models_changed(self)

    def _take_offer(self, offer: ModelOffer, *, announce: bool = True) -> None:
        self._has_offered = True
        model = self._models.get(offer.model)
        if model is None:
            return
        found = Readiness(state=offer.state, reason=offer.reason)
        unfit = why_unfit(offer, model) if offer.state == "ready" else None
        if unfit is not None:
            log.error("model refused: worker=%s model=%s: %s", self.name, model.name, unfit)
            found = Readiness(state="failed", reason=unfit)
        self._served[model.name] = found
        if announce:
            self._owner.models_changed(self)

    def _set_model(self, model: str, readiness: Readiness) -> None:
        self._has_offered = True
        if model in self._models:
            self._served[model] = readiness
            self._owner.models_changed(self)

    def _on_end(self, reason: str) -> None:
        was_up, link = self.is_up, self.link_number
        self.has_been_up = self.has_been_up or was_up
        self._link = self._watch = None
        self.is_up = self._is_draining = self._has_offered = False
        self._served.clear()
        self._patience.forget()
        self.under_way = 0
        if was_up:
            self._owner.lost(self, link, reason)
        if self._is_closed:
            return
        if was_up:
            self.dial()
        else:
            self._dial_later()

    def _dial_later(self) -> None:
        self._redial = self._timers.call_later(to_seconds(self._pause), self.dial)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _unreached(self) -> Readiness:
        if self.has_been_up:
            return Readiness(state="lost", reason=f"worker {self.name} is being restarted")
        return Readiness(state="loading", reason=f"worker {self.name} is starting")

    # Silence

    def _time_launches(self, reply: Reply) -> None:
        launch = max(reply.times.prefix, reply.times.denoise)
        if launch and self._patience.timed(launch) and self._check is not None:
            # The check was set with patience for a launch of unknown length.
            self._check.cancel()
            self._check_after(self._patience.limit)

    def _check_after(self, delay: Nanos) -> None:
        self._check_at = self._clock() + delay
        self._check = self._timers.call_later(to_seconds(delay), self._check_progress)

    def _check_progress(self) -> None:
        self._check = None
        now, patience = self._clock(), self._patience
        patience.is_loading = self.is_loading
        if now - self._check_at > patience.limit // _HELD_UP:
            patience.pardon(now)
        left = patience.left(now)
        if left is None:
            return
        if left > 0:
            self._check_after(left)
            return
        silence = now - patience.since()
        self._owner.hung(self, silence)
        self.end(f"worker {self.name} made no progress for {to_seconds(silence):.1f} s")
