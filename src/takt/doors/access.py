"""Who may come in: the token robots present, the addresses they may come from, and what a door
may bind without either.

A token keeps strangers out; it identifies nobody, since a lab's robots share one. A protocol that
cannot carry a token (LeRobot's) has a list of networks instead, which is weaker: whoever can send
from there is let in.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from takt.doors.http_request import HttpError
from takt.errors import ConfigError

__all__ = ["Access", "AllowedNetworks", "check_exposure", "check_open_exposure"]

log = logging.getLogger(__name__)

_SCHEMES = frozenset({"api-key", "bearer"})


class Access:
    """Checks the token of a request.

    Args:
        token: What robots must present; None lets everybody in.

    Raises:
        ConfigError: The token is empty or cannot stand in a header.
    """

    def __init__(self, token: str | None) -> None:
        if token is not None and not (token and token.isascii() and token.isprintable()):
            raise ConfigError("a token must be printable ASCII text and not empty")
        self._token = None if token is None else token.encode()

    def check(self, headers: Mapping[str, str]) -> None:
        """Refuse a request that does not present the token.

        Raises:
            HttpError: It does not; 401.
        """
        if self._token is None:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        presented = given.strip().encode("latin-1", "replace")
        # The comparison takes as long for a nearly right token as for a wrong one.
        is_right = hmac.compare_digest(presented, self._token)
        if scheme.lower() not in _SCHEMES or not is_right:
            raise HttpError(
                HTTPStatus.UNAUTHORIZED,
                "unauthorized: expected the header 'Authorization: Api-Key <token>' "
                "with this server's token",
                {"WWW-Authenticate": "Api-Key"},
            )


def check_exposure(host: str, token: str | None) -> None:
    """Refuse to bind an address that others can reach when no token keeps them out.

    Raises:
        ConfigError: It is not loopback and there is no token, or it is no address.
    """
    if token is None and not _is_loopback(host):
        raise ConfigError(
            f"host {host!r} lets other computers in: give a token (--token-file or TAKT_TOKEN), "
            "or bind 127.0.0.1"
        )


class AllowedNetworks:
    """Checks where a connection comes from. This host itself is always let in.

    Args:
        networks: In CIDR notation, such as ``10.0.0.0/8``.

    Raises:
        ConfigError: One of them is no network.
    """

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [_network(text) for text in networks]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def admits(self, address: str) -> bool:
        """Whether a client at this address may come in."""
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return found.is_loopback or any(found in network for network in self._networks)


def check_open_exposure(host: str, networks: AllowedNetworks, *, door: str) -> None:
    """Refuse to bind an address that others can reach, for a door whose protocol has no tokens.

    Networks that clients may come from count as the authentication; the log warns of how little
    that is.

    Raises:
        ConfigError: The address is not loopback and no network is allowed, or it is no address.
    """
    if _is_loopback(host):
        return
    if not networks:
        raise ConfigError(
            f"host {host!r} lets other computers in, and the {door} protocol cannot carry a token:"
            f" say which may come (--allow-from {door}=10.0.0.0/24), or bind 127.0.0.1"
        )
    log.warning(
        "door without a token: door=%s host=%s; whoever sends from the allowed networks is let in",
        door,
        host,
    )


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError as error:
        raise ConfigError(f"--allow-from {text!r}: {error}") from None


def _is_loopback(host: str) -> bool:
    if not host:
        return False
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"host {host!r}: {error.strerror}") from None
    except UnicodeError:  # a label that is empty or too long
        raise ConfigError(f"host {host!r}: expected a name or an IP address") from None
    return all(ipaddress.ip_address(str(entry[4][0])).is_loopback for entry in found)
