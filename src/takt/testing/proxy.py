"""A bad network between a client and a server on this computer.

A :class:`LoopbackProxy` passes bytes on, late if it is told to, goes silent as a pulled cable does,
or ends connections as a dying router does. TCP never reorders, repeats or drops what it delivers;
what a broken server or middlebox can do is that to whole *answers*, and so can the proxy, which
knows WebSocket frames as far as that.

Start reading at :class:`LoopbackProxy`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeAlias

from takt.units import Nanos, to_seconds

__all__ = ["EditAnswers", "LoopbackProxy", "frames_in"]

EditAnswers: TypeAlias = Callable[[int, bytes], Sequence[bytes]]
"""What to pass on instead of a frame of the server, given its number on this connection: 0 is the
greeting. It may keep a frame and pass it on with a later one."""

_TIMEOUT_S = 10.0
_BLOCK = 1 << 16
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_SHORT, _LONG = 126, 127
_HEAD_END = b"\r\n\r\n"


class LoopbackProxy:
    """Stands between a client, which connects to :attr:`address`, and a server.

    Its methods may be called from any thread and have taken effect when they return.

    Args:
        target: ``host:port`` of the server.
        edit_answers: Applied to each WebSocket frame of the server; None passes bytes on unread.
    """

    def __init__(self, target: str, *, edit_answers: EditAnswers | None = None) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._edit = edit_answers
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="takt-proxy")
        self._listener: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._refusing = self._silent = False
        self._delay = 0.0
        self._accepted = 0

    @property
    def address(self) -> str:
        """``host:port`` to connect to, while the context lasts."""
        assert self._listener is not None
        host, port = self._listener.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    @property
    def connections(self) -> int:
        """Connections taken so far."""
        return self._accepted

    def delay(self, each_way: Nanos) -> None:
        """Let what arrives from now on take this long, in both directions; nothing overtakes."""
        self._delay = to_seconds(each_way)

    def cut(self) -> None:
        """End every connection by a reset, and each new one at once, until :meth:`restore`."""
        self._call(self._cut())

    def silence(self) -> None:
        """Keep connections and pass nothing on, until :meth:`restore`: a pulled cable.

        What arrives meanwhile is lost. Connections that were there meanwhile are reset on
        :meth:`restore`, since TCP would not go on after a gap.
        """
        self._call(self._silence())

    def restore(self) -> None:
        """Be a good network again."""
        self._call(self._restore())

    def __enter__(self) -> LoopbackProxy:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT_S)
        self._loop.close()

    def _call(self, work: Coroutine[object, object, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _close(self) -> None:
        assert self._listener is not None
        self._listener.close()
        await self._cut()
        await asyncio.gather(*(link.over.wait() for link in self._links))

    async def _cut(self) -> None:
        self._refusing = True
        for link in list(self._links):
            link.reset()

    async def _silence(self) -> None:
        self._silent = True

    async def _restore(self) -> None:
        if self._silent:
            await self._cut()
        self._refusing = self._silent = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._accepted += 1
        link = _Link(writer)
        if self._refusing:
            link.reset()
            return
        self._links.add(link)
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
            link.server = server_writer
            up = self._pump(reader, server_writer, None)
            down = self._pump(server_reader, writer, _Editor.of(self._edit))
            await asyncio.gather(up, down)
        except OSError:
            pass  # either side has gone; the other hears of it below
        finally:
            link.reset()
            link.over.set()
            self._links.discard(link)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        editor: _Editor | None,
    ) -> None:
        last = 0.0
        while data := await source.read(_BLOCK):
            if self._silent:
                continue
            if editor is not None:
                data = editor.edit(data)
            if self._delay or last > self._loop.time():
                last = max(self._loop.time() + self._delay, last + 1e-6)
                self._loop.call_at(last, _send, sink, data)
            else:
                _send(sink, data)
        # The other direction ends with this one: none of our protocols closes by halves.
        raise ConnectionResetError


class _Link:
    """The two ends of one connection."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.over = asyncio.Event()

    def reset(self) -> None:
        for end in filter(None, (self.client, self.server)):
            with contextlib.suppress(OSError):
                opened: socket.socket = end.get_extra_info("socket")
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            end.transport.abort()


class _Editor:
    """Cuts the server's bytes into frames and applies a rule to each."""

    def __init__(self, rule: EditAnswers) -> None:
        self._rule = rule
        self._rest = b""
        self._is_open = False
        self._number = 0

    @classmethod
    def of(cls, rule: EditAnswers | None) -> _Editor | None:
        """An editor where there is a rule."""
        return None if rule is None else cls(rule)

    def edit(self, data: bytes) -> bytes:
        """What to pass on."""
        data = self._rest + data
        head = b""
        if not self._is_open:
            end = data.find(_HEAD_END)
            if end < 0:
                self._rest = data
                return b""
            head, data = data[: end + len(_HEAD_END)], data[end + len(_HEAD_END) :]
            self._is_open = True
        frames, self._rest = frames_in(data)
        passed: list[bytes] = []
        for frame in frames:
            passed += self._rule(self._number, frame)
            self._number += 1
        return head + b"".join(passed)


def frames_in(data: bytes) -> tuple[list[bytes], bytes]:
    """Cut what a server sends into whole WebSocket frames; also what remains of the last one."""
    frames: list[bytes] = []
    while (size := _frame_size(data)) is not None and size <= len(data):
        frames.append(data[:size])
        data = data[size:]
    return frames, data


def _frame_size(data: bytes) -> int | None:
    """Bytes of the frame that ``data`` begins with; None while too few have come to tell."""
    if len(data) < 2:  # noqa: PLR2004 - the shortest head of a frame
        return None
    length = data[1] & 0x7F
    more = {_SHORT: 2, _LONG: 8}.get(length, 0)
    if len(data) < 2 + more:
        return None
    return 2 + more + (int.from_bytes(data[2 : 2 + more], "big") if more else length)


def _send(sink: asyncio.StreamWriter, data: bytes) -> None:
    if data and not sink.is_closing():
        sink.write(data)
