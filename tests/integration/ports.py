"""Ports on loopback that stay one's own while no server listens there."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["reserved_port"]


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that servers of a test may listen at, one after the other, and nobody else is given.

    The kernel gives away no port that a socket is bound to. Another one may still listen there if
    both say ``SO_REUSEADDR``, as servers do.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
