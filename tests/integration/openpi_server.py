"""A small openpi server on loopback, in a thread, whose behaviour each test chooses."""

import contextlib
import http
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from takt.wire.limits import Limits
from takt.wire.msgpack_arrays import Dialect
from takt.wire.openpi import decode_observation, encode_metadata, encode_reply

__all__ = ["CutError", "Respond", "echo", "openpi_server"]

Respond: TypeAlias = Callable[[dict[str, Any], ServerConnection], "bytes | str | None"]
"""Answers an observation; None: says nothing."""


class CutError(Exception):
    """Raised by a response: the connection ends without a close frame."""


def echo(observation: dict[str, Any], connection: ServerConnection) -> bytes:
    """Answer as Takt's echo policy does, 50 steps."""
    state = np.asarray(observation["observation/state"], np.float32)
    values: dict[str, object] = {
        "actions": state + np.arange(50, dtype=np.float32)[:, None],
        "server_timing": {"infer_ms": 0.5},
        "policy_timing": {"infer_ms": 0.25},
    }
    options = observation.get("takt")
    if options is not None:
        values["takt"] = {"sequence": options["sequence"], "stages_ms": {"prefix": 0.25}}
    return encode_reply(values, Dialect.OPENPI)


@contextlib.contextmanager
def openpi_server(
    respond: Respond = echo,
    *,
    metadata: Mapping[str, object] | None = None,
    greet: bytes | str | None = None,
    farewell: str | None = None,
    token: str | None = None,
    paths: list[str] | None = None,
    port: int = 0,
) -> Iterator[str]:
    """Serve while the context lasts.

    Args:
        respond: Answers each observation.
        metadata: The greeting.
        greet: Sent instead of it.
        farewell: The connection is closed for this reason before anything is sent.
        token: Handshakes without it are refused.
        paths: Gets the path of each handshake.
        port: 0 takes a free one.

    Yields:
        The server's ``host:port``.
    """

    def admit(connection: ServerConnection, request: Request) -> Response | None:
        if paths is not None:
            paths.append(request.path)
        return _refusal(connection, request, token)

    talking: set[ServerConnection] = set()

    def talk(connection: ServerConnection) -> None:
        talking.add(connection)
        if farewell is not None:
            connection.close(1008, farewell)
            return
        connection.send(encode_metadata(metadata or {}) if greet is None else greet)
        _converse(connection, respond)

    server = serve(
        talk,
        "127.0.0.1",
        port,
        process_request=admit,
        compression=None,
        max_size=None,
        close_timeout=0.1,
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        host, port = server.socket.getsockname()[:2]
        yield f"{host}:{port}"
    finally:
        server.shutdown()
        for connection in talking:
            connection.close_socket()
        thread.join()


def _refusal(connection: ServerConnection, request: Request, token: str | None) -> Response | None:
    if token and request.headers.get("Authorization") != f"Api-Key {token}":
        return connection.respond(http.HTTPStatus.UNAUTHORIZED, "unauthorized: wrong token\n")
    if request.path.startswith("/v1/models/nothing"):
        body = "unknown_model: no model 'nothing'; models: echo\n"
        return connection.respond(http.HTTPStatus.NOT_FOUND, body)
    return None


def _converse(connection: ServerConnection, respond: Respond) -> None:
    for message in connection:
        assert isinstance(message, bytes)
        try:
            said = respond(decode_observation(message, Limits()).values, connection)
        except CutError:
            connection.close_socket()
            return
        if said is not None:
            connection.send(said)
