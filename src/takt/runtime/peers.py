"""The gateways that are connected to a worker, and what is said between them.

Nothing here waits. What a gateway does not read is kept up to the channel's bound; beyond it the
gateway is dropped, so one that hangs costs the others nothing.
"""

from __future__ import annotations

import logging
import selectors
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from takt.errors import RefusedError
from takt.link.ends import GatewayLink
from takt.link.layout import SlotLayout, SlotView
from takt.link.listener import Listener
from takt.link.messages import GatewayHello, GatewayMessage, SlotRef, WorkerMessage
from takt.link.slots import Drop

__all__ = ["Peer", "Peers"]

log = logging.getLogger(__name__)


class Peer:
    """One connection of a gateway.

    Args:
        link: From an accepted channel.
    """

    def __init__(self, link: GatewayLink) -> None:
        self.link = link
        self.epoch = 0
        """Which life of the gateway this is, from its hello on. Kept here because requests that
        came just before the link ended are looked at after its end."""
        self._views: dict[tuple[int, int], SlotView] = {}

    def slot(self, ref: SlotRef, layout: SlotLayout) -> SlotView:
        """As :meth:`takt.link.ends.GatewayLink.slot`; a view is made once and used again."""
        key = (ref.slot, layout.fingerprint)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = self.link.slot(ref, layout)
        return view


class Peers:
    """Everybody who is connected.

    Args:
        listener: Accepts them.
        selector: Watches the listener and the connections; its data are functions of the mask.
        on_message: Told what a gateway says.
        on_end: Told that a connection has ended.
    """

    def __init__(
        self,
        listener: Listener,
        selector: selectors.BaseSelector,
        on_message: Callable[[Peer, GatewayMessage], None],
        on_end: Callable[[Peer], None],
    ) -> None:
        self.dropped: Counter[Drop] = Counter()
        """Messages of connections that have ended which belonged to another life of the gateway."""
        self._listener = listener
        self._selector = selector
        self._on_message = on_message
        self._on_end = on_end
        self._peers: list[Peer] = []
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def __iter__(self) -> Iterator[Peer]:
        """The connections, oldest first; they may end meanwhile."""
        return iter(tuple(self._peers))

    def __len__(self) -> int:
        return len(self._peers)

    def send(self, peer: Peer, message: WorkerMessage) -> None:
        """Say something to a gateway, if it is still there."""
        if peer not in self._peers:
            return
        try:
            peer.link.send(message)
        except RefusedError as error:
            self._part(peer, str(error))

    def send_all(self, message: WorkerMessage) -> None:
        """Say something to everybody."""
        for peer in self:
            self.send(peer, message)

    def num_dropped(self) -> Counter[Drop]:
        """Messages dropped since the start, by reason."""
        return sum((peer.link.dropped for peer in self), self.dropped)

    def close(self, reason: str) -> None:
        """End all connections and accept no more."""
        for peer in self:
            self._selector.unregister(peer.link.channel)
            peer.link.close(reason)
        self._peers.clear()
        self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self, _: int) -> None:
        for channel in self._listener.accept():
            peer = Peer(GatewayLink(channel))
            self._peers.append(peer)
            self._selector.register(channel, selectors.EVENT_READ, partial(self._hear, peer))
            channel.on_backlog = partial(self._watch, peer)

    def _watch(self, peer: Peer, wants_to_write: bool) -> None:
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if wants_to_write else 0)
        self._selector.modify(peer.link.channel, mask, partial(self._hear, peer))

    def _hear(self, peer: Peer, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            peer.link.channel.flush()
        if mask & selectors.EVENT_READ:
            for message in peer.link.receive():
                if isinstance(message, GatewayHello):
                    peer.epoch = message.epoch
                    log.info("gateway connected: name=%s epoch=%x", message.gateway, message.epoch)
                self._on_message(peer, message)
            if not peer.link.channel.is_open and peer in self._peers:
                self._part(peer, peer.link.channel.end_reason or "")

    def _part(self, peer: Peer, reason: str) -> None:
        """A gateway is gone, or has to go."""
        log.info("gateway gone: epoch=%x reason=%s", peer.epoch, reason)
        self._peers.remove(peer)
        self.dropped += peer.link.dropped
        self._selector.unregister(peer.link.channel)
        peer.link.close(reason)
        self._on_end(peer)
