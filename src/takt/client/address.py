"""Turns what a person writes for a server into a WebSocket URL.

Takt names the model by the path and the robot by the query, so both reach the server before the
first observation; a stock openpi server ignores them.
"""

from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

from takt.errors import UsageError

__all__ = ["DEFAULT_PORT", "ServerAddress", "server_address"]

DEFAULT_PORT = 8000
"""openpi's port, for an address without one."""

_PORTS = {"ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where a server listens, and what to ask it for."""

    url: str
    """``ws://`` or ``wss://`` URL with path and query."""
    host: str
    """Name or IP address, without brackets."""
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def server_address(
    address: str, *, model: str | None = None, robot: str | None = None
) -> ServerAddress:
    """Read an address.

    Args:
        address: ``host``, ``host:port``, ``[ipv6]:port``, or a ``ws://`` or ``wss://`` URL. A URL
            may hold a path, and a query of its own.
        model: Name of the model; None: the server's default.
        robot: Name of the robot.

    Raises:
        UsageError: It is no address, or names a model although ``model`` does too.
    """
    scheme, _, rest = address.rpartition("://")
    if scheme not in ("", *_PORTS):
        raise UsageError(f"address {address!r}: expected host:port, ws://... or wss://...")
    try:
        parts = urlsplit(f"{scheme or 'ws'}://{rest}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"address {address!r}: {error}") from None
    if not host or not address.isprintable() or " " in address or parts.username is not None:
        raise UsageError(f"address {address!r}: expected host:port, ws://... or wss://...")
    if model is not None and parts.path.strip("/"):
        raise UsageError(f"address {address!r} has a path already; leave out model {model!r}")
    port = port or _PORTS.get(scheme, DEFAULT_PORT)
    netloc = str(ServerAddress(url="", host=host, port=port))
    path = parts.path or "/" if model is None else f"/v1/models/{quote(model, safe='')}"
    named = "" if robot is None else urlencode({"robot": robot})
    query = "&".join(part for part in (parts.query, named) if part)
    url = f"{parts.scheme}://{netloc}{path}{'?' if query else ''}{query}"
    return ServerAddress(url=url, host=host, port=port)
