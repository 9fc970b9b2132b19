"""Listening sockets for doors, which stay in service when there are no file descriptors left.

Start reading at :func:`listen_on`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import Any

from takt.link.reserve import AcceptReserve

__all__ = ["SheddingSocket", "listen_on"]

_LAST_PORT = 65_535
_NOT_HERE = frozenset([errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
"""A name may stand for an address of a protocol that this host does not speak."""


class SheddingSocket(socket.socket):
    """A listening socket that turns connections away when there is no descriptor for them."""

    def __init__(self, family: int) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._reserve = AcceptReserve()

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; as :meth:`takt.link.reserve.AcceptReserve.accept`."""
        return self._reserve.accept(super().accept)

    def close(self) -> None:
        """Stop listening."""
        super().close()
        self._reserve.close()


def listen_on(host: str, port: int, backlog: int) -> list[SheddingSocket]:
    """Sockets that listen at every address ``host`` stands for.

    Args:
        host: Name or address.
        port: Port; 0 takes a free one, the same at every address.
        backlog: Connections that may wait to be accepted.

    Raises:
        OSError: There is no such address here, or the port is taken.
        OverflowError: It is no port.
        UnicodeError: It is no name.
    """
    if not 0 <= port <= _LAST_PORT:
        raise OverflowError(f"a port lies in 0..{_LAST_PORT}")
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    places = dict.fromkeys((family, address) for family, _, _, _, address in found)
    sockets: list[SheddingSocket] = []
    with contextlib.ExitStack() as opened:
        for family, address in places:
            listening = _listening(family, (address[0], port, *address[2:]), backlog)
            if listening is not None:
                opened.callback(listening.close)
                sockets.append(listening)
                port = port or listening.getsockname()[1]
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        opened.pop_all()
    return sockets


def _listening(family: int, address: tuple[Any, ...], backlog: int) -> SheddingSocket | None:
    """A socket that listens there; None if this host does not speak that protocol."""
    with contextlib.ExitStack() as opened:
        try:
            listening = opened.enter_context(SheddingSocket(family))
            # A server that was killed a moment ago must not keep its successor from the port.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
            listening.listen(backlog)
        except OSError as error:
            if error.errno in _NOT_HERE:
                return None
            raise
        opened.pop_all()
        return listening
