"""The HTTP part of a WebSocket connection, in a door's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["HttpError", "HttpRequest", "read_request"]

_MAX_QUERY_FIELDS = 32


class HttpError(Exception):
    """The request is answered with an error and the connection is closed.

    Args:
        status: Status of the response.
        sentence: Its body.
        headers: Further headers.
    """

    def __init__(
        self, status: HTTPStatus, sentence: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """The head of a GET request."""

    path: str
    """Path without the query, percent-decoded."""
    query: Mapping[str, str]
    """Fields of the query; the last of a name holds."""
    headers: Mapping[str, str]
    """Headers by lower-case name."""

    @property
    def is_upgrade(self) -> bool:
        """Whether the client wants a WebSocket."""
        return self.headers.get("upgrade", "").strip().lower() == "websocket"


def read_request(target: bytes, headers: Mapping[str, str]) -> HttpRequest:
    """Take a request apart.

    Args:
        target: Path and query as they were sent.
        headers: Headers in any case.

    Raises:
        HttpError: The target is no path with a short query.
    """
    try:
        parts = urlsplit(target.decode("ascii"))
        query = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS)
    except ValueError:
        raise HttpError(
            HTTPStatus.BAD_REQUEST,
            f"wire: expected an ASCII path with a query of at most {_MAX_QUERY_FIELDS} fields",
        ) from None
    return HttpRequest(
        path=unquote(parts.path) or "/",
        query=dict(query),
        headers={name.lower(): value for name, value in headers.items()},
    )
