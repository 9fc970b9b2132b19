"""A WebSocket server for doors, on picows: bounded, and never in the way of anybody else.

picows sees to the handshake, frames, masking, ping and pong, and refuses a frame that is too long
when it has read its header. What is here: plain HTTP questions, messages in fragments, the number
of connections, peers that do not read, and closing in good order. What a door decides: who may
come in, and what messages mean.

Start reading at :class:`Site` (what a door provides) and :class:`WebSocketServer`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, cast

from picows import (
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSProtocolError,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
    ws_create_server,  # pyright: ignore[reportUnknownVariableType] - half typed
)

from takt.doors.http_request import HttpError, HttpRequest, read_request
from takt.doors.listening import listen_on
from takt.errors import ConfigError
from takt.units import Nanos

__all__ = ["Guest", "Site", "WebSocketConnection", "WebSocketLimits", "WebSocketServer"]

log = logging.getLogger(__name__)

# picows logs each frame that breaks the protocol as an error, so that any peer could fill a disk.
# What is ours to know is logged here: nothing that picows calls raises.
_picows_log = logging.getLogger(f"{__name__}.picows")
_picows_log.setLevel(logging.CRITICAL)

_BACKLOG = 512
_VERSION = "13"
"""The only version of the protocol that was ever more than a draft."""
_MAX_REASON_BYTES = 123
"""A close frame holds no longer reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketLimits:
    """What a server allows its peers. ``takt.wire.limits`` bounds what a message may hold."""

    max_message_bytes: int
    """Longest message, over all its fragments. A connection keeps a buffer of up to twice its
    longest message."""
    max_connections: int = 1024
    """Connections at once."""
    max_unsent_bytes: int = 8 * 2**20
    """Bytes kept for a peer that does not read; with more it is dropped."""
    handshake_s: float = 10.0
    """Time from the connection to the end of the request head."""
    ping_s: float = 20.0
    """A peer that has been silent for this long is sent a ping; silent for as long again, it is
    dropped and its requests are cancelled."""
    close_s: float = 2.0
    """Time a peer has to answer a close."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}")


class Guest(Protocol):
    """A door's side of one open connection."""

    def on_open(self) -> None:
        """The connection is open: greet."""
        ...

    def on_message(self, data: memoryview, arrival: Nanos) -> None:
        """A binary message came.

        Args:
            data: The message, in memory that is used again after this call: copy what is kept.
            arrival: When its last byte was read.
        """
        ...

    def on_text(self) -> None:
        """A text message came; its content was thrown away."""
        ...

    def on_closed(self) -> None:
        """The connection is gone. Called once, after the last message."""
        ...


class Site(Protocol):
    """What a door tells the server."""

    def answer(self, request: HttpRequest) -> tuple[HTTPStatus, str] | None:
        """The response to a plain HTTP question; None if the path is one for WebSockets.

        Raises:
            HttpError: The request is refused.
        """
        ...

    def welcome(self, request: HttpRequest, connection: WebSocketConnection) -> Guest:
        """The guest for a WebSocket. Nothing is to be kept before its ``on_open``: the handshake
        may still fail.

        Raises:
            HttpError: The request is refused.
        """
        ...


class WebSocketServer:
    """Accepts connections for one door.

    Args:
        site: The door.
        limits: What peers may do.
        clock: Monotonic, in nanoseconds; stamps arrivals.
    """

    def __init__(self, site: Site, limits: WebSocketLimits, clock: Callable[[], Nanos]) -> None:
        self.limits = limits
        self.clock = clock
        self.connections: set[WebSocketConnection] = set()
        """Every open connection."""
        self._site = site
        self._servers: list[asyncio.Server] = []
        self._empty = asyncio.Event()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Bind and accept; the address and port that were bound.

        Raises:
            ConfigError: The address cannot be bound.
        """
        limits = self.limits
        try:
            sockets = listen_on(host, port, _BACKLOG)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"cannot listen on {host} port {port}: {reason}") from None
        for listening in sockets:
            server = await ws_create_server(
                self._admit,
                sock=listening,
                max_frame_size=limits.max_message_bytes,
                websocket_handshake_timeout=limits.handshake_s,
                enable_auto_ping=True,
                auto_ping_idle_timeout=limits.ping_s,
                auto_ping_reply_timeout=limits.ping_s,
                logger_name=_picows_log,
                backlog=_BACKLOG,
            )
            self._servers.append(server)
        name = cast("tuple[str, int]", sockets[0].getsockname())
        return name[0], name[1]

    def stop_listening(self) -> None:
        """Accept nobody any more; open connections stay."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def close(self, reason: str) -> None:
        """Stop listening, close every connection, and wait until they are gone."""
        self.stop_listening()
        self._empty.clear()
        for connection in [*self.connections]:
            connection.close(WSCloseCode.GOING_AWAY, reason)
        if self.connections:
            await self._empty.wait()

    def forget(self, connection: WebSocketConnection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    def _admit(
        self, request: WSUpgradeRequest
    ) -> WebSocketConnection | WSUpgradeResponseWithListener:
        try:
            return self._respond(read_request(request.path, request.headers))
        except HttpError as error:
            return _refusal(error)
        except Exception:
            log.exception("handshake failed")
            return _refusal(HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, "failed: see the log"))

    def _respond(self, request: HttpRequest) -> WebSocketConnection | WSUpgradeResponseWithListener:
        answer = self._site.answer(request)
        if answer is not None:
            return _only(_plain_response(*answer))
        if not request.is_upgrade:
            raise HttpError(
                HTTPStatus.UPGRADE_REQUIRED,
                "wire: expected a WebSocket client, such as openpi-client",
                {"Upgrade": "websocket"},
            )
        if request.headers.get("sec-websocket-version", "").strip() != _VERSION:
            raise HttpError(
                HTTPStatus.UPGRADE_REQUIRED,
                f"wire: expected version {_VERSION} of the WebSocket protocol",
                {"Upgrade": "websocket", "Sec-WebSocket-Version": _VERSION},
            )
        if len(self.connections) >= self.limits.max_connections:
            raise HttpError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"busy: {self.limits.max_connections} connections are open, the limit",
            )
        connection = WebSocketConnection(self)
        connection.guest = self._site.welcome(request, connection)
        return connection


class WebSocketConnection(WSListener):
    """One connection of a peer; its guest is who the door sent."""

    guest: Guest

    def __init__(self, server: WebSocketServer) -> None:
        super().__init__()
        self._server = server
        self._limits = server.limits
        self._transport: WSTransport | None = None
        self._is_closing = False
        self._kind: WSMsgType | None = None
        """Kind of the message whose fragments are arriving."""
        self._fragments = bytearray()
        self._num_bytes = 0
        self._holds: set[str] = set()
        """Who has asked not to read on."""
        self._drop_timer: asyncio.TimerHandle | None = None

    # For a door

    def send(self, message: str | bytes) -> None:
        """Send a text or a binary message; does nothing once the connection is closing."""
        transport = self._transport
        if transport is None or self._is_closing or transport.underlying_transport.is_closing():
            return
        kind = WSMsgType.TEXT if isinstance(message, str) else WSMsgType.BINARY
        transport.send(kind, message)
        unsent = transport.underlying_transport.get_write_buffer_size()
        if unsent > self._limits.max_unsent_bytes:
            log.warning("peer dropped, it does not read: unsent_bytes=%d", unsent)
            transport.disconnect(graceful=False)

    def close(self, code: WSCloseCode, reason: str) -> None:
        """Close in good order; the peer has a moment to answer."""
        if self._transport is None or self._is_closing:
            return
        self._is_closing = True
        cut = reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
        self._transport.send_close(code, cut.encode())
        self.hold(False, "pipelining")
        loop = asyncio.get_running_loop()
        self._drop_timer = loop.call_later(self._limits.close_s, self._drop)

    def hold(self, is_held: bool, by: str) -> None:
        """Stop reading until nobody holds the connection any more."""
        had = bool(self._holds)
        if is_held:
            self._holds.add(by)
        else:
            self._holds.discard(by)
        if self._transport is None or had == bool(self._holds):
            return
        beneath = self._transport.underlying_transport
        if beneath.is_closing():
            return
        if self._holds:
            beneath.pause_reading()  # type: ignore[attr-defined]
        else:
            beneath.resume_reading()  # type: ignore[attr-defined]

    # For picows

    def on_ws_connected(self, transport: WSTransport) -> None:
        """The handshake is done."""
        self._transport = transport
        self._server.connections.add(self)
        self._guarded(self.guest.on_open)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """The connection is gone."""
        del transport
        self._transport = None
        if self._drop_timer is not None:
            self._drop_timer.cancel()
        self._guarded(self.guest.on_closed)
        self._server.forget(self)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """A frame came; its bytes are picows's own and good during this call only."""
        if frame.msg_type is WSMsgType.CLOSE:
            self._on_close(transport, frame)
        elif not self._is_closing and frame.msg_type is not WSMsgType.PONG:
            self._guarded(lambda: self._on_data(frame))

    def pause_writing(self) -> None:
        """The peer reads slowly: take no more of its requests meanwhile."""
        self.hold(True, "writing")

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.hold(False, "writing")

    def _guarded(self, act: Callable[[], None]) -> None:
        """Do something for the peer; whatever goes wrong ends this connection and no other."""
        try:
            act()
        except WSProtocolError as error:
            # Closed here and not by picows, which would go on with the frames it has read already.
            code, reason = cast("tuple[WSCloseCode, str]", error.args[:2])
            log.info("peer breaks the protocol: %s", reason)
            self.close(code, reason)
        except Exception:
            log.exception("connection failed")
            self.close(WSCloseCode.INTERNAL_ERROR, "failed: the server's log says why")

    def _on_close(self, transport: WSTransport, frame: WSFrame) -> None:
        if not self._is_closing:
            self._is_closing = True
            code = frame.get_close_code()
            transport.send_close(WSCloseCode.OK if code is WSCloseCode.NO_INFO else code)
        transport.disconnect()

    def _on_data(self, frame: WSFrame) -> None:
        arrival = self._server.clock()
        self._check(frame)
        kind = self._kind
        if frame.fin and not self._fragments:
            self._finish(kind, frame.get_payload_as_memoryview(), arrival)
            return
        if kind is WSMsgType.BINARY:
            self._fragments += frame.get_payload_as_memoryview()
        if frame.fin:
            self._finish(kind, memoryview(bytes(self._fragments)), arrival)

    def _check(self, frame: WSFrame) -> None:
        """Refuse what cannot follow.

        Raises:
            WSProtocolError: It does; with the code and the reason for the peer.
        """
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            raise WSProtocolError(WSCloseCode.PROTOCOL_ERROR, "no extension was agreed on")
        is_continuation = frame.msg_type is WSMsgType.CONTINUATION
        if is_continuation != (self._kind is not None):
            raise WSProtocolError(WSCloseCode.PROTOCOL_ERROR, "fragments of two messages are mixed")
        if self._kind is None:
            self._kind = frame.msg_type
        self._num_bytes += frame.payload_size
        if self._num_bytes > self._limits.max_message_bytes:
            raise WSProtocolError(
                WSCloseCode.MESSAGE_TOO_BIG,
                f"message of {self._num_bytes} bytes or more,"
                f" limit is {self._limits.max_message_bytes}",
            )

    def _finish(self, kind: WSMsgType | None, data: memoryview, arrival: Nanos) -> None:
        self._kind, self._fragments, self._num_bytes = None, bytearray(), 0
        if kind is WSMsgType.TEXT:
            self.guest.on_text()
        else:
            self.guest.on_message(data, arrival)

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.disconnect(graceful=False)


def _refusal(error: HttpError) -> WSUpgradeResponseWithListener:
    log.info("connection refused: status=%d reason=%s", error.status, error.sentence)
    body = (error.sentence + "\n").encode()
    return _only(WSUpgradeResponse.create_error_response(error.status, body, error.headers))


def _only(response: WSUpgradeResponse) -> WSUpgradeResponseWithListener:
    """A response after which the connection ends."""
    return WSUpgradeResponseWithListener(response, None)


def _plain_response(status: HTTPStatus, body: str) -> WSUpgradeResponse:
    if status is HTTPStatus.OK:
        return WSUpgradeResponse.create_ok_response(body.encode())
    return WSUpgradeResponse.create_error_response(status, body.encode())
