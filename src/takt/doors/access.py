"""Who may come in: the token robots present, and the addresses a door may bind without one.

A token keeps strangers out; it identifies nobody, since a lab's robots share one.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Mapping
from http import HTTPStatus

from takt.doors.http_request import HttpError
from takt.errors import ConfigError

__all__ = ["Access", "check_exposure"]

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


def _is_loopback(host: str) -> bool:
    if not host:
        return False
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"host {host!r}: {error}") from None
    return all(ipaddress.ip_address(str(entry[4][0])).is_loopback for entry in found)
