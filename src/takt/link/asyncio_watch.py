"""Lets an asyncio loop drive a link by readiness, with asyncio's or uvloop's loop alike.

A worker without asyncio does the same with a selector: register the link for reading, set
``link.channel.on_backlog`` to change the registration, call ``receive`` and ``flush``.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from takt.link.channel import Channel

__all__ = ["AsyncioWatch", "Receiver"]

M = TypeVar("M")
T = TypeVar("T")


class Receiver(Protocol[M]):
    """An end of a link: a channel and the messages read from it."""

    @property
    def channel(self) -> Channel:
        """The channel under the link."""
        ...

    def receive(self) -> list[M]:
        """Messages that have arrived."""
        ...


class AsyncioWatch(Generic[M]):
    """Watches one link on a loop until it ends.

    Args:
        link: What to watch.
        on_message: Called with each message, on the loop.
        on_end: Called once with the reason, after the last message; not after :meth:`detach`.
        loop: The loop; the running one by default.
    """

    def __init__(
        self,
        link: Receiver[M],
        *,
        on_message: Callable[[M], None],
        on_end: Callable[[str], None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._link = link
        self._on_message = on_message
        self._on_end = on_end
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._fd = link.channel.fileno()
        self._is_detached = False
        link.channel.on_backlog = self._watch_writing
        self._loop.add_reader(self._fd, self._readable)
        self._watch_writing(link.channel.backlog_bytes > 0)

    def detach(self) -> None:
        """Stop watching: no callback follows. Call it before closing the channel on this side."""
        self._is_detached = True
        self._forget()

    def _forget(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            self._fd = -1

    def _watch_writing(self, is_needed: bool) -> None:
        if self._fd < 0:
            return
        if is_needed:
            self._loop.add_writer(self._fd, self._link.channel.flush)
        else:
            self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        messages = self._link.receive()
        end_reason = self._link.channel.end_reason
        if end_reason is not None:
            # The descriptor's number may be given to the next connection: forget it first.
            self._forget()
        for message in messages:
            self._tell(self._on_message, message)
        if end_reason is not None:
            self._tell(self._on_end, end_reason)

    def _tell(self, listener: Callable[[T], None], news: T) -> None:
        """Call a listener; one that raises takes no other message with it."""
        if self._is_detached:
            return
        try:
            listener(news)
        except Exception as error:  # noqa: BLE001 - the loop reports it, as of any callback
            self._loop.call_exception_handler(
                {"message": f"a link's listener failed: {listener!r}", "exception": error}
            )
