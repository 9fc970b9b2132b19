"""Turns what a person writes for a server into a WebSocket URL.

Takt names the model by the path and the robot by the query, so both reach the server before the
first observation; a stock openpi server ignores them.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from takt.errors import UsageError

__all__ = ["DEFAULT_PORT", "ServerAddress", "server_address", "split_address"]

DEFAULT_PORT = 8000
"""openpi's port, for an address without one."""

_PORTS = {"ws": 80, "wss": 443}
_EXPECTED = "expected host:port, such as 127.0.0.1:8000, or a ws:// or wss:// URL"


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
    address: str,
    *,
    model: str | None = None,
    robot: str | None = None,
    called: str = "address",
) -> ServerAddress:
    """Read an address.

    Args:
        address: ``host``, ``host:port``, ``[ipv6]:port``, or a ``ws://`` or ``wss://`` URL. A URL
            may hold a path, and a query of its own.
        model: Name of the model; None: the server's default.
        robot: Name of the robot.
        called: What errors call the address.

    Raises:
        UsageError: It is no address, or names a model although ``model`` does too.
    """
    scheme, _, rest = address.rpartition("://")
    split = split_address(f"{scheme or 'ws'}://{rest}")
    if scheme not in ("", *_PORTS) or split is None:
        raise UsageError(f"{called} {address!r}: {_EXPECTED}")
    parts, host = split
    if model is not None and parts.path.strip("/"):
        raise UsageError(f"{called} {address!r} has a path already; leave out model {model!r}")
    port = parts.port or _PORTS.get(scheme, DEFAULT_PORT)
    netloc = str(ServerAddress(url="", host=host, port=port))
    path = parts.path or "/" if model is None else f"/v1/models/{quote(model, safe='')}"
    named = "" if robot is None else urlencode({"robot": robot})
    query = "&".join(part for part in (parts.query, named) if part)
    url = f"{parts.scheme}://{netloc}{path}{'?' if query else ''}{query}"
    return ServerAddress(url=url, host=host, port=port)


def split_address(url: str) -> tuple[SplitResult, str] | None:
    """The parts of a URL and its host.

    Returns:
        None: there is no host that could be asked, no port that could be listened on, or a name
        and password, which nobody here takes.
    """
    if not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # brackets without an address in them, a port that is no number
        return None
    if not host or port == 0 or parts.username is not None or _is_half_an_address(host):
        return None
    return parts, host


def _is_half_an_address(host: str) -> bool:
    """Whether it is a number, which the resolver would take for the rest of an IP address."""
    if not host.replace(".", "").isdecimal():
        return False
    try:
        IPv4Address(host)
    except ValueError:
        return True
    return False
