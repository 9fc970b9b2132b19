"""Ports for servers that cannot take a free one themselves."""

import socket

__all__ = ["free_port"]


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
