"""Whole messages to and from a server, over one WebSocket.

This is the only module that knows the ``websockets`` package. Its errors become
:class:`~takt.client.errors.ConnectionLostError`, and a handshake that the server refuses becomes
the :class:`~takt.errors.RefusedError` it means. Every wait has an end.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Protocol

from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    WebSocketException,
)
from websockets.frames import CloseCode
from websockets.sync.client import connect

from takt.client.address import ServerAddress
from takt.client.errors import ConnectionLostError
from takt.errors import RefusedError, UsageError
from takt.units import SECOND, Nanos, to_seconds
from takt.wire.openpi_errors import error_in_text

__all__ = ["Transport", "WebsocketTransport", "open_transport"]

_CLOSE_TIMEOUT_S = 0.25
"""Longest wait for the server to confirm a close."""

_REFUSALS: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: "unauthorized",
    HTTPStatus.FORBIDDEN: "unauthorized",
    HTTPStatus.NOT_FOUND: "unknown_model",
    HTTPStatus.TOO_MANY_REQUESTS: "busy",
    HTTPStatus.SERVICE_UNAVAILABLE: "busy",
}
"""What the status of a refused handshake means, where the body does not say it."""


class Transport(Protocol):
    """A connection that carries whole messages."""

    def send(self, message: bytes) -> None:
        """Send a binary message.

        Raises:
            ConnectionLostError: The connection has ended.
        """
        ...

    def receive(self, timeout: Nanos) -> str | bytes:
        """Wait for the next message, text as ``str``.

        Raises:
            ConnectionLostError: The connection has ended, or ``timeout`` has passed.
        """
        ...

    def has_unread(self) -> bool:
        """Whether a message is here that nobody received; it is lost by asking."""
        ...

    def close(self) -> None:
        """End the connection. Another thread may do so; a wait under way then ends."""
        ...


def open_transport(
    address: ServerAddress, *, token: str | None, timeout: Nanos, max_message_bytes: int
) -> "WebsocketTransport":
    """Connect to a server.

    Proxies that the environment names are not used: robots and servers share a network.

    Args:
        address: The server.
        token: Secret that the server asks for.
        timeout: For the handshake as a whole, and for each piece of a message to be taken.
        max_message_bytes: Largest message the server may send.

    Raises:
        ConnectionLostError: There is no server that speaks this protocol.
        RefusedError: The server does not want this client; the code says why.
    """
    give_up = time.monotonic_ns() + timeout
    headers = {} if token is None else {"Authorization": f"Api-Key {_checked(token)}"}
    plain = _open_socket(address, timeout)
    with contextlib.ExitStack() as stack:
        stack.callback(plain.close)
        try:
            websocket = stack.enter_context(
                connect(
                    address.url,
                    sock=plain,
                    compression=None,
                    additional_headers=headers,
                    open_timeout=max(0.001, to_seconds(give_up - time.monotonic_ns())),
                    close_timeout=_CLOSE_TIMEOUT_S,
                    max_size=max_message_bytes,
                )
            )
        except InvalidStatus as error:
            body = error.response.body or b""
            raise _refusal(address, error.response.status_code, bytes(body)) from None
        except TimeoutError:
            raise _unreachable(address, "it accepts connections but does not answer") from None
        # The library passes a ValueError on when a server redirects a socket of ours.
        except (InvalidHandshake, WebSocketException, EOFError, OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise _unreachable(address, f"no WebSocket server answers there ({why})") from None
        return WebsocketTransport(websocket, stack.pop_all(), str(address))


class WebsocketTransport:
    """See :class:`Transport`; made by :func:`open_transport`.

    Args:
        websocket: Open connection.
        closing: What to leave in order to close it.
        peer: Name of the server in errors.
    """

    def __init__(self, websocket: "_Websocket", closing: contextlib.ExitStack, peer: str) -> None:
        self._websocket = websocket
        self._closing = closing
        self._peer = peer

    def send(self, message: bytes) -> None:
        """See :meth:`Transport.send`."""
        try:
            self._websocket.send(message)
        except ConnectionClosed as error:
            raise self._lost(error) from None

    def receive(self, timeout: Nanos) -> str | bytes:
        """See :meth:`Transport.receive`."""
        try:
            return self._websocket.recv(timeout=to_seconds(timeout))
        except TimeoutError:
            message = f"{self._peer} sent nothing for {to_seconds(timeout):g} s"
            raise ConnectionLostError(message, code="timeout") from None
        except ConnectionClosed as error:
            raise self._lost(error) from None

    def has_unread(self) -> bool:
        """See :meth:`Transport.has_unread`."""
        try:
            self._websocket.recv(timeout=0)
        except (TimeoutError, ConnectionClosed):
            return False
        return True

    def close(self) -> None:
        """See :meth:`Transport.close`."""
        with contextlib.suppress(OSError, WebSocketException):
            self._closing.close()

    def _lost(self, error: ConnectionClosed) -> ConnectionLostError:
        if isinstance(error.__cause__, BlockingIOError):  # SO_SNDTIMEO, see _open_socket
            return ConnectionLostError(f"{self._peer} takes no more bytes", code="timeout")
        ours = error.sent
        if ours is not None and ours.code == CloseCode.MESSAGE_TOO_BIG and not error.rcvd_then_sent:
            why = f"{self._peer} sent more than a message may hold; {ours.reason}"
            return ConnectionLostError(why, code="closed")
        if error.rcvd is None:
            why = f"{self._peer} ended the connection without a close frame"
            return ConnectionLostError(why, code="closed")
        code, reason = error.rcvd.code, error.rcvd.reason
        said = f"code {code}: {reason}" if reason else f"code {code}"
        why = f"{self._peer} ended the connection with {said}"
        return ConnectionLostError(why, code="closed", reason=reason)


class _Websocket(Protocol):
    """What is used of a connection of the library."""

    def send(self, message: bytes) -> None: ...
    def recv(self, timeout: float | None = None) -> str | bytes: ...


def _open_socket(address: ServerAddress, timeout: Nanos) -> socket.socket:
    try:
        opened = socket.create_connection((address.host, address.port), timeout=to_seconds(timeout))
    except TimeoutError:
        raise _unreachable(address, "no answer; a firewall may drop the packets") from None
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from None
    opened.settimeout(None)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Without it a server that stops reading would hold `send` for ever.
    whole, rest = divmod(timeout, SECOND)
    limit = struct.pack("@ll", whole, rest // 1000)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    return opened


def _checked(token: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("a token has printable ASCII characters, no spaces, and at least one")
    return token


def _refusal(address: ServerAddress, status: int, body: bytes) -> Exception:
    code = _REFUSALS.get(status)
    if code is None:
        return _unreachable(address, f"it answers with HTTP status {status}, not with openpi")
    said = error_in_text(body.decode("utf-8", "replace").strip())
    if said.code != RefusedError.code:  # the server speaks our language
        return said
    return RefusedError(f"{address} refused the connection with HTTP status {status}", code=code)


def _unreachable(address: ServerAddress, why: str) -> ConnectionLostError:
    return ConnectionLostError(f"cannot connect to {address}: {why}", code="unreachable")
