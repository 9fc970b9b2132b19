"""The two ends of WorkerLink: a channel plus the rules of its messages.

:class:`WorkerLink` is the gateway's end: it says hello and hands the arena over.
:class:`GatewayLink` is the worker's end: it maps the arena and drops what belongs to another life
of the gateway. A peer that breaks the rules ends the link; it never raises into a loop that has
other peers.
"""

import os
from collections import Counter

from takt.errors import ConfigError, WireError
from takt.link.arena import Arena, ArenaGeometry, ArenaView
from takt.link.channel import Channel
from takt.link.layout import SlotLayout, SlotView
from takt.link.messages import (
    Cancel,
    GatewayHello,
    GatewayMessage,
    SlotRef,
    Submit,
    WorkerMessage,
    decode_from_gateway,
    decode_from_worker,
    encode,
)
from takt.link.slots import Drop

__all__ = ["GatewayLink", "WorkerLink"]


class WorkerLink:
    """A gateway's link to one worker.

    Args:
        channel: From :func:`takt.link.listener.connect`.
        arena: Handed to the worker with the hello.
        gateway: Name of this gateway, for logs.
        epoch: Number of this life of the gateway.
    """

    def __init__(self, channel: Channel, arena: Arena, *, gateway: str, epoch: int) -> None:
        self.channel = channel
        """The channel under the link; ask it whether the link is open."""
        hello = GatewayHello(
            gateway=gateway,
            epoch=epoch,
            num_slots=arena.geometry.num_slots,
            slot_bytes=arena.geometry.slot_bytes,
        )
        channel.send(encode(hello), fds=[arena.fd])

    def send(self, message: GatewayMessage) -> None:
        """Send a message; raises what :meth:`takt.link.channel.Channel.send` raises."""
        self.channel.send(encode(message))

    def receive(self) -> list[WorkerMessage]:
        """Messages that have arrived; the link ends at the first that is none."""
        messages: list[WorkerMessage] = []
        try:
            for body in self.channel.receive():
                messages.append(decode_from_worker(body))  # noqa: PERF401 - keeps those before
        except WireError as error:
            self.channel.close(str(error))
        return messages


class GatewayLink:
    """A worker's link to one gateway.

    The first message received is the gateway's hello; answer it with a WorkerHello.

    Args:
        channel: From :meth:`takt.link.listener.Listener.accept`.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        """The channel under the link; ask it whether the link is open."""
        self.dropped: Counter[Drop] = Counter()
        """Messages that belong to another life of the gateway or to no slot."""
        self._hello: GatewayHello | None = None
        self._arena: ArenaView | None = None

    @property
    def epoch(self) -> int:
        """Which life of the gateway this is.

        Raises:
            WireError: The gateway has not said hello.
        """
        return self._greeted()[0].epoch

    def send(self, message: WorkerMessage) -> None:
        """Send a message; raises what :meth:`takt.link.channel.Channel.send` raises."""
        self.channel.send(encode(message))

    def receive(self) -> list[GatewayMessage]:
        """Messages that have arrived; the link ends at the first that breaks the rules."""
        messages: list[GatewayMessage] = []
        try:
            for body in self.channel.receive():
                message = self._admit(decode_from_gateway(body))
                if message is not None:
                    messages.append(message)
        except (WireError, ConfigError) as error:
            self.channel.close(str(error))
        return messages

    def slot(self, ref: SlotRef, layout: SlotLayout) -> SlotView:
        """The bytes of a request; read them with :meth:`~takt.link.layout.SlotView.read`.

        Raises:
            WireError: The gateway has not said hello.
            UsageError: The arena has no such slot, or it is too small for the layout.
        """
        return SlotView(self._greeted()[1].slot(ref.slot), layout)

    def close(self, reason: str) -> None:
        """End the link and let go of the arena; views on slots keep their memory."""
        self.channel.close(reason)
        if self._arena is not None:
            self._arena.close()
            self._arena = None

    def _greeted(self) -> tuple[GatewayHello, ArenaView]:
        if self._hello is None or self._arena is None:
            raise WireError("expected a hello first, got none")
        return self._hello, self._arena

    def _admit(self, message: GatewayMessage) -> GatewayMessage | None:
        if isinstance(message, GatewayHello):
            self._greet(message)
            return message
        hello, _ = self._greeted()
        if isinstance(message, Submit | Cancel):
            drop = self._why_drop(message.ref, hello)
            if drop is not None:
                self.dropped[drop] += 1
                return None
        return message

    def _greet(self, hello: GatewayHello) -> None:
        if self._hello is not None:
            raise WireError("expected one hello, got a second")
        geometry = ArenaGeometry(num_slots=hello.num_slots, slot_bytes=hello.slot_bytes)
        fd = self.channel.take_fd()
        try:
            self._arena = ArenaView.map(fd, geometry)
        finally:
            os.close(fd)
        self._hello = hello

    @staticmethod
    def _why_drop(ref: SlotRef, hello: GatewayHello) -> Drop | None:
        if ref.epoch != hello.epoch:
            return Drop.EPOCH
        return Drop.SLOT if ref.slot >= hello.num_slots else None
