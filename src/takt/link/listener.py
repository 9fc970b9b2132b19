"""How two processes of one host find each other.

Addresses lie in Linux's abstract namespace: no file is made, nothing stays behind after a kill,
and an address can be bound again the moment its owner is gone. Any user of the host may dial or
squat such an address, so both sides check that the other runs under the same user.

A supervisor may call :func:`listen` and let the worker inherit the socket. Connections then queue
while the worker starts or restarts, and a gateway learns of the new worker by its hello, without
dialling again and again.
"""

import errno
import logging
import os
import socket
import struct

from takt.errors import ConfigError
from takt.link.address import LinkAddress
from takt.link.channel import BacklogError, Channel, PeerLostError
from takt.link.reserve import AcceptReserve

__all__ = ["Listener", "check_peer", "connect", "listen"]

_CREDENTIALS = struct.Struct("3i")
_PREFIX = "\0takt/"
_BACKLOG = 128

log = logging.getLogger(__name__)


def listen(name: str) -> socket.socket:
    """A listening socket at ``name``, see :class:`~takt.link.address.LinkAddress`.

    Raises:
        ConfigError: Another process listens there, or the address is none of this host.
    """
    path = _path(name)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(path)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(f"link address {name!r}: {error.strerror}") from error
    return listening


def connect(name: str) -> Channel:
    """A channel to whoever listens at ``name``; returns at once.

    Raises:
        ConfigError: The address is none of this host.
        PeerLostError: Nobody listens there, or somebody of another user does.
        BacklogError: The listener has too many connections it has not accepted.
    """
    path = _path(name)
    dialled = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    dialled.setblocking(False)
    try:
        dialled.connect(path)
        check_peer(dialled)
    except PeerLostError:
        dialled.close()
        raise
    except OSError as error:
        dialled.close()
        if error.errno == errno.EAGAIN:
            raise BacklogError(f"link address {name!r}: its listener accepts nobody") from error
        raise PeerLostError(f"link address {name!r}: {error.strerror}") from error
    return Channel(dialled)


def _path(name: str) -> str:
    return _PREFIX + LinkAddress.parse(name).on_this_host()


def check_peer(connection: socket.socket) -> None:
    """Refuse a peer that runs under another user.

    Raises:
        PeerLostError: The user differs.
    """
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    if uid != os.geteuid():
        raise PeerLostError(f"the peer runs as user {uid}, expected {os.geteuid()}")


class Listener:
    """Accepts connections of the same user.

    Args:
        listening: From :func:`listen`, perhaps inherited; the listener owns it from now on.
    """

    def __init__(self, listening: socket.socket) -> None:
        listening.setblocking(False)
        self._socket = listening
        self._reserve = AcceptReserve()
        self.num_refused = 0
        """Connections of other users."""

    def fileno(self) -> int:
        """Descriptor to register with a selector or a loop."""
        return self._socket.fileno()

    def accept(self) -> list[Channel]:
        """Everybody who waits; call it when the listener is readable."""
        channels: list[Channel] = []
        while True:
            try:
                connection, _ = self._reserve.accept(self._socket.accept)
            except (BlockingIOError, ConnectionAbortedError):
                return channels
            try:
                check_peer(connection)
            except PeerLostError as error:
                self.num_refused += 1
                connection.close()
                log.warning("link connection refused: %s", error)
                continue
            channels.append(Channel(connection, accept_fd=True))

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
        self._reserve.close()
