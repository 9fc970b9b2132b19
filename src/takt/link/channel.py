"""A non-blocking channel of whole messages over a connected stream socket.

One object for both event loops: it owns a socket and two buffers, and never waits. A driver
calls :meth:`Channel.receive` when the socket is readable and :meth:`Channel.flush` when it is
writable; ``on_backlog`` tells the driver when the second is needed. asyncio drives it through
:class:`takt.link.asyncio_watch.AsyncioWatch`, a worker through its selector.

A frame is magic, version, length, body. It works on any stream, so a TCP link frames the same
way. The length is checked before memory is taken. One thread owns a channel.

End of a peer: what it sent before it died is delivered first, then ``is_open`` becomes false and
``end_reason`` says why. Until :meth:`Channel.receive` has reported the end, messages to the dead
peer are dropped without an error: one report of an end is enough, and a loop that serves other
peers is not thrown out of its course. Start reading at :meth:`Channel.receive`.
"""

import os
import socket
import struct
from array import array
from collections import deque
from collections.abc import Callable, Sequence

from takt.errors import LimitError, RefusedError, UsageError, WireError
from takt.link.messages import LINK_VERSION

__all__ = ["MAX_MESSAGE_BYTES", "BacklogError", "Channel", "PeerLostError"]

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Longest message; a worker's hello with the specs of many models is the longest there is."""
_FRAME = struct.Struct("<2sBBI")
_MAGIC = b"TK"
_READ_BYTES = 64 * 1024
# A talkative peer may not keep the loop from its other peers: the socket stays readable.
_MAX_READS = 4
_MAX_FDS = 1
_FD_BYTES = array("i").itemsize


class PeerLostError(RefusedError):
    """The process at the other end is gone or was never there."""

    code = "worker_lost"


class BacklogError(RefusedError):
    """The peer does not read: more is waiting for it than the bound allows."""

    code = "busy"


def _ignore(_: bool) -> None:
    """Nobody drives the channel yet."""


class Channel:
    """Messages both ways with one peer.

    Args:
        connection: A connected stream socket; the channel owns it from now on.
        max_message_bytes: Longest message accepted or sent.
        max_backlog_bytes: Most bytes kept for a peer that does not read.
        accept_fd: Whether a file descriptor may come beside the first message.
    """

    def __init__(
        self,
        connection: socket.socket,
        *,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        max_backlog_bytes: int = 2 * MAX_MESSAGE_BYTES,
        accept_fd: bool = False,
    ) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._max_message_bytes = max_message_bytes
        self._max_backlog_bytes = max_backlog_bytes
        self._scratch = memoryview(bytearray(_READ_BYTES))
        self._inbox = bytearray()
        self._backlog: deque[memoryview] = deque()
        self._backlog_bytes = 0
        self._fds_to_send: tuple[int, ...] = ()
        self._has_sent = False
        self._accept_fd = accept_fd
        self._received_fd: int | None = None
        self.end_reason: str | None = None
        """Why the channel ended; None while it is open."""
        self.on_backlog: Callable[[bool], None] = _ignore
        """Called with True when :meth:`flush` is needed, with False when it is not any more."""

    @property
    def is_open(self) -> bool:
        """Whether messages may still arrive."""
        return self.end_reason is None

    @property
    def backlog_bytes(self) -> int:
        """Bytes that wait until the peer reads."""
        return self._backlog_bytes

    def fileno(self) -> int:
        """Descriptor to register with a selector or a loop; -1 once closed."""
        return self._socket.fileno()

    def send(self, body: bytes, *, fds: Sequence[int] = ()) -> None:
        """Send a message now, or as soon as the peer reads.

        Args:
            body: The message.
            fds: File descriptors to hand over, with the first message only. They must stay open
                until the message has left.

        Raises:
            PeerLostError: The channel has ended, and said so.
            BacklogError: The peer does not read; nothing of this message was sent.
            LimitError: The message is longer than the limit.
        """
        self._check_sendable(body, fds)
        if fds:
            self._fds_to_send = tuple(fds)
        self._has_sent = True
        frame = memoryview(_FRAME.pack(_MAGIC, LINK_VERSION, 0, len(body)) + body)
        if not self._backlog:
            frame = frame[self._send_some(frame) :]
            if not frame:
                return
            self.on_backlog(True)
        self._backlog.append(frame)
        self._backlog_bytes += len(frame)

    def flush(self) -> None:
        """Send what waits, as far as the peer reads; a lost peer shows in :meth:`receive`."""
        if not self._backlog:
            return
        while self._backlog:
            sent = self._send_some(self._backlog[0])
            self._backlog_bytes -= sent
            if sent < len(self._backlog[0]):
                self._backlog[0] = self._backlog[0][sent:]
                return
            self._backlog.popleft()
        self.on_backlog(False)

    def receive(self) -> list[bytes]:
        """Whole messages that have arrived; empty when there is none.

        Look at ``is_open`` after the messages: false means these were the last.
        """
        messages: list[bytes] = []
        for _ in range(_MAX_READS):
            if not self.is_open:
                break
            count = self._read_some()
            self._inbox += self._scratch[:count]
            try:
                self._split(messages)
            except WireError as error:
                self.close(str(error))
            if count < _READ_BYTES:
                break
        return messages

    def take_fd(self) -> int:
        """The descriptor that came with the first message; the caller owns it.

        Raises:
            WireError: None came.
        """
        if self._received_fd is None:
            raise WireError("expected a file descriptor beside the first message, got none")
        fd, self._received_fd = self._received_fd, None
        return fd

    def close(self, reason: str = "closed on this side") -> None:
        """End the channel; what waits to be sent is dropped. Closing twice does nothing."""
        if self.end_reason is not None:
            return
        self.end_reason = reason
        self._backlog.clear()
        self._backlog_bytes = 0
        if self._received_fd is not None:
            os.close(self._received_fd)
            self._received_fd = None
        self._socket.close()

    def _check_sendable(self, body: bytes, fds: Sequence[int]) -> None:
        if not self.is_open:
            raise PeerLostError(f"the link has ended: {self.end_reason}")
        if fds and (self._has_sent or len(fds) > _MAX_FDS):
            raise UsageError("one file descriptor may travel, beside the first message")
        if len(body) > self._max_message_bytes:
            raise LimitError(f"message of {len(body)} bytes, limit is {self._max_message_bytes}")
        if self._backlog_bytes + len(body) > self._max_backlog_bytes:
            raise BacklogError(
                f"the peer has not read {self._backlog_bytes} bytes, limit is "
                f"{self._max_backlog_bytes}"
            )

    def _send_some(self, frame: memoryview) -> int:
        """Bytes of the frame that need no more care."""
        try:
            if self._fds_to_send:
                sent = socket.send_fds(self._socket, [frame], list(self._fds_to_send))
                self._fds_to_send = ()
                return sent
            return self._socket.send(frame)
        except BlockingIOError:
            return 0
        except OSError:
            return len(frame)  # the peer is gone; receive() reports it

    def _read_some(self) -> int:
        try:
            count = (
                self._recv_with_fd() if self._accept_fd else self._socket.recv_into(self._scratch)
            )
        except BlockingIOError:
            return 0
        except OSError as error:
            self.close(f"the peer is gone: {error.strerror}")
            return 0
        if count == 0:
            self.close("the peer closed the link")
        return count

    def _recv_with_fd(self) -> int:
        # CMSG_LEN, not CMSG_SPACE: the padding would let a second descriptor in, and leak it.
        # MSG_CMSG_CLOEXEC: a descriptor that arrives while another thread forks must not leak.
        count, ancillary, _, _ = self._socket.recvmsg_into(
            [self._scratch], socket.CMSG_LEN(_MAX_FDS * _FD_BYTES), socket.MSG_CMSG_CLOEXEC
        )
        self._accept_fd = False
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._received_fd = array("i", payload[:_FD_BYTES])[0]
        return count

    def _split(self, messages: list[bytes]) -> None:
        start, inbox = 0, self._inbox
        while len(inbox) - start >= _FRAME.size:
            magic, version, _, length = _FRAME.unpack_from(inbox, start)
            if magic != _MAGIC or version != LINK_VERSION:
                raise WireError(
                    f"expected a frame of link version {LINK_VERSION}, got {magic!r} {version}"
                )
            if length > self._max_message_bytes:
                raise LimitError(f"message of {length} bytes, limit is {self._max_message_bytes}")
            end = start + _FRAME.size + length
            if len(inbox) < end:
                break
            with memoryview(inbox) as view:
                messages.append(bytes(view[start + _FRAME.size : end]))
            start = end
        if start:
            del inbox[:start]
