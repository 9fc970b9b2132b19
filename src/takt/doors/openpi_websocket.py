"""The openpi door: unmodified openpi clients, and clients that know Takt, over WebSocket.

The server speaks first and sends the model's card. Then each binary message is one observation and
gets one answer, in order: a chunk in the dialect of the request, or an error after which the
connection is as usable as before. ``/`` is the default model, ``/v1/models/<name>`` another; the
query may name the robot and its run. ``/healthz`` and ``/readyz`` answer plain HTTP.

A client that sends several observations before it reads is served: answers come in the order of
the requests, newer observations supersede waiting ones, and with too many unanswered the door
stops reading until some are answered.

Start reading at :meth:`OpenpiDoor.start`, then :meth:`_Robot.on_message`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from picows import WSCloseCode

from takt import __version__
from takt.doors.access import Access, check_exposure
from takt.doors.http_request import HttpError, HttpRequest
from takt.doors.limits import door_limits
from takt.doors.openpi_images import image_offer
from takt.doors.openpi_keys import read_observation
from takt.doors.openpi_repeats import RepeatReader
from takt.doors.openpi_replies import encode_chunk_reply
from takt.doors.websocket_server import WebSocketConnection, WebSocketLimits, WebSocketServer
from takt.errors import RefusedError, WireError
from takt.gateway.connection import GatewayConnection, GatewaySession
from takt.gateway.gateway import Gateway
from takt.gateway.request import Answer
from takt.schema.observation import Observation
from takt.schema.plain import to_plain
from takt.schema.row import Executing
from takt.schema.spec import PolicySpec
from takt.session.timing import Declared
from takt.units import Nanos, to_ms
from takt.wire.limits import Limits
from takt.wire.msgpack_arrays import Dialect
from takt.wire.openpi import (
    ReplyTiming,
    chunk_reply,
    decode_observation,
    encode_metadata,
)
from takt.wire.openpi_errors import encode_error
from takt.wire.openpi_options import OPTIONS_KEY, RequestOptions, error_form_of, split_options

__all__ = ["MODELS_PATH", "OpenpiDoor"]

log = logging.getLogger(__name__)

MODELS_PATH = "/v1/models/"
"""Path under which each model has its own; the root is the default model."""

_STATUS = {"unknown_model": HTTPStatus.NOT_FOUND, "busy": HTTPStatus.SERVICE_UNAVAILABLE}
"""Status of a handshake that is refused, by the code of the reason."""

_MAX_UNANSWERED = 16
"""Observations of one connection without an answer before the door stops reading from it."""


class OpenpiDoor:
    """Serves a gateway's models to openpi clients.

    Args:
        gateway: Whose models.
        token: What clients must present; None: nothing, which only loopback allows.
        limits: What one message may hold; None: derived from the model of its connection.
        websocket: What connections may do; its message limit is that of ``limits``.
        clock: Monotonic, in nanoseconds; the gateway's.

    Raises:
        ConfigError: The token cannot stand in a header.
    """

    def __init__(
        self,
        gateway: Gateway,
        *,
        token: str | None = None,
        limits: Limits | None = None,
        websocket: WebSocketLimits | None = None,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        self.limits = limits
        self.gateway = gateway
        self.clock = clock
        self.counters: Counter[str] = Counter()
        """Connections, messages, and messages refused before they reached the gateway by code."""
        self._token = token
        self._access = Access(token)
        self._greetings: dict[str, tuple[PolicySpec, bytes]] = {}
        self._server = WebSocketServer(
            self,
            websocket
            if websocket is not None
            else WebSocketLimits(max_message_bytes=(limits or Limits()).max_message_bytes),
            clock,
        )

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Bind and serve.

        Args:
            host: Address to bind; one that others can reach needs a token.
            port: Port to bind; 0 takes a free one.

        Returns:
            The address and the port that were bound.

        Raises:
            ConfigError: The address cannot or must not be bound.
        """
        check_exposure(host, self._token)
        return await self._server.start(host, port)

    def stop_listening(self) -> None:
        """Accept no further connections; open ones are served."""
        self._server.stop_listening()

    async def close(self, reason: str) -> None:
        """Close every connection."""
        await self._server.close(reason)

    def statistics(self) -> dict[str, int]:
        """Every counter by name."""
        return {
            **{f"openpi.{name}": count for name, count in self.counters.items()},
            "openpi.open_connections": len(self._server.connections),
        }

    # Site

    def answer(self, request: HttpRequest) -> tuple[HTTPStatus, str] | None:
        """Health, readiness, and what is not here; see :class:`Site`."""
        if request.path == "/healthz":
            return HTTPStatus.OK, "OK\n"
        if request.path == "/readyz":
            return self._ready()
        if request.path != "/" and not request.path.startswith(MODELS_PATH):
            raise HttpError(
                HTTPStatus.NOT_FOUND,
                f"wire: nothing at {request.path!r}; paths: /, {MODELS_PATH}<name>, /healthz,"
                " /readyz",
            )
        return None

    def welcome(self, request: HttpRequest, connection: WebSocketConnection) -> _Robot:
        """Let a client in; see :class:`Site`."""
        self._access.check(request.headers)
        drain_reason = self.gateway.drain_reason
        if drain_reason is not None:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, f"draining: {drain_reason}")
        try:
            guest = _Robot(self, connection, request)
        except RefusedError as error:
            status = _STATUS.get(error.code, HTTPStatus.BAD_REQUEST)
            raise HttpError(status, f"{error.code}: {error}") from None
        self.counters["connections"] += 1
        return guest

    def greeting(self, model: str) -> bytes:
        """The metadata message of a model.

        Raises:
            RefusedError: There is no such model.
        """
        served = self.gateway.model(model)
        spec = served.spec
        known = self._greetings.get(model)
        if known is None or known[0] is not spec:  # a model may give way to another of its name
            card = {
                "version": __version__,
                "model": model,
                "models": [*self.gateway.models],
                "slo_ms": to_ms(served.slo),
                "spec": to_plain(spec),
                "images": image_offer(spec.observation),
                "takes_leftovers": served.takes_leftovers,
            }
            known = self._greetings[model] = spec, encode_metadata({OPTIONS_KEY: card})
        return known[1]

    def _ready(self) -> tuple[HTTPStatus, str]:
        unready = {
            name: readiness
            for name in self.gateway.models
            if (readiness := self.gateway.readiness(name)).state != "ready"
        }
        if self.gateway.drain_reason is not None:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"draining: {self.gateway.drain_reason}\n"
        if not unready:
            return HTTPStatus.OK, "OK\n"
        lines = [
            f"{name}: {found.state} {found.reason}".rstrip() for name, found in unready.items()
        ]
        return HTTPStatus.SERVICE_UNAVAILABLE, "\n".join(lines) + "\n"


@dataclass(slots=True)
class _Exchange:
    """One request of a connection and its answer, which waits for those before it."""

    arrival: Nanos
    dialect: Dialect = Dialect.OPENPI
    options: RequestOptions = field(default_factory=RequestOptions)
    reply: Answer | RefusedError | None = None
    chunking: dict[str, str] | None = None
    """What became of a leftover."""


class _Robot:
    """One connection of a client.

    Raises:
        RefusedError: There is no such model.
    """

    def __init__(
        self, door: OpenpiDoor, connection: WebSocketConnection, request: HttpRequest
    ) -> None:
        self._door = door
        self._gateway = door.gateway
        self._connection = connection
        self._model = self._model_in(request.path)
        self._robot = request.query.get("robot") or None
        self._run = request.query.get("session") or None
        self._greeting = door.greeting(self._model)
        allowed = door_limits([door.gateway.spec(self._model)])
        self._limits = allowed.message if door.limits is None else door.limits
        self._rate = allowed.request_rate(door.clock())
        self._exchanges: deque[_Exchange] = deque()
        self._repeats = RepeatReader()
        self._previous_total: Nanos | None = None
        self._sessions: dict[str | None, GatewaySession] = {}
        self._link: GatewayConnection | None = None

    # Guest

    def on_open(self) -> None:
        """Greet, unless the robot must not connect."""
        self._link = self._gateway.connect(self._on_displaced)
        try:
            self._session(self._robot)
        except RefusedError as error:
            self._connection.close(WSCloseCode.POLICY_VIOLATION, f"{error.code}: {error}")
        else:
            self._connection.send(self._greeting)

    def on_message(self, data: memoryview, arrival: Nanos) -> None:
        """An observation came."""
        self._door.counters["messages"] += 1
        exchange = _Exchange(arrival)
        self._exchanges.append(exchange)
        try:
            self._ask(exchange, data)
        except RefusedError as error:
            self._door.counters[f"refused.{error.code}"] += 1
            self._settle(exchange, error)
        except Exception as error:  # noqa: BLE001 - a fault of ours is answered, too
            self._settle(exchange, _internal_error(error))
        if len(self._exchanges) >= _MAX_UNANSWERED:
            self._connection.hold(True, "pipelining")

    def on_text(self) -> None:
        """Say that this door takes no text."""
        exchange = _Exchange(self._door.clock())
        self._exchanges.append(exchange)
        sentence = "this door takes observations as binary MessagePack messages, got a text message"
        self._settle(exchange, WireError(sentence))

    def on_closed(self) -> None:
        """The client is gone: cancel what it waits for."""
        self._exchanges.clear()
        if self._link is not None:
            self._link.close()

    # Requests

    def _ask(self, exchange: _Exchange, data: memoryview) -> None:
        self._rate.charge(exchange.arrival)
        observation = self._read(exchange, data)
        options = exchange.options
        session = self._session(options.robot or self._robot)
        answer = session.infer(
            self._model,
            observation,
            arrival=exchange.arrival,
            declared=Declared(due_in=options.due_in, max_action_age=options.expires_in),
            run=options.session or self._run,
            sequence=options.sequence,
            executing=self._executing(exchange),
            is_lent=True,
        )
        answer.add_done_callback(lambda done: self._on_answer(exchange, done))

    def _executing(self, exchange: _Exchange) -> Executing | None:
        """What the robot is executing, if this model made it; the answer says so either way."""
        leftover = exchange.options.leftover
        if leftover is None:
            return None
        digest = self._gateway.spec(self._model).digest
        is_own = bool(digest) and leftover.digest == digest
        reason = f"none: the chunk being executed is of model {leftover.digest}"
        exchange.chunking = {
            "model_digest": digest,
            "chunking": "guided" if is_own else reason,
        }
        return leftover if is_own else None

    def _read(self, exchange: _Exchange, data: memoryview) -> Observation:
        """The observation of a message; how to answer it is noted as soon as it is known."""
        spec = self._gateway.spec(self._model).observation
        repeated = self._repeats.read(data, spec)
        if repeated is not None:
            exchange.dialect, exchange.options, observation = repeated
            return observation
        message = decode_observation(data, self._limits)
        exchange.dialect = message.dialect
        exchange.options = RequestOptions(error_form=error_form_of(message.values))
        values, exchange.options = split_options(message.values)
        observation = read_observation(values, spec)
        self._repeats.remember(data, message, exchange.options, observation, spec)
        return observation

    def _session(self, robot: str | None) -> GatewaySession:
        session = self._sessions.get(robot)
        if session is None:
            assert self._link is not None
            session = self._sessions[robot] = self._link.session(robot)
        return session

    def _on_answer(self, exchange: _Exchange, done: asyncio.Future[Answer]) -> None:
        if done.cancelled():
            return  # the connection is gone
        error = done.exception()
        if error is None:
            self._settle(exchange, done.result())
        elif isinstance(error, RefusedError):
            self._settle(exchange, error)
        else:
            self._settle(exchange, _internal_error(error))

    def _settle(self, exchange: _Exchange, reply: Answer | RefusedError) -> None:
        """Send what has its turn: the protocol has no numbers, so answers keep the order."""
        exchange.reply = reply
        while self._exchanges and self._exchanges[0].reply is not None:
            answered = self._exchanges.popleft()
            self._send(answered)
            # A kept error would keep its frames, and with them the exchange and the observation.
            answered.reply = None
        if len(self._exchanges) < _MAX_UNANSWERED:
            self._connection.hold(False, "pipelining")

    def _send(self, exchange: _Exchange) -> None:
        reply = exchange.reply
        form = exchange.options.error_form
        try:
            if isinstance(reply, Answer):
                message = self._encode(exchange, reply)
            else:
                assert reply is not None
                message = encode_error(reply, form)
        except Exception as error:  # noqa: BLE001 - a fault of ours is answered, too
            message = encode_error(_internal_error(error), form)
        self._connection.send(message)
        self._previous_total = self._door.clock() - exchange.arrival

    def _encode(self, exchange: _Exchange, answer: Answer) -> bytes:
        timing = ReplyTiming(
            policy=answer.policy,
            server=self._door.clock() - answer.arrival,
            previous_total=self._previous_total,
            stages=answer.stages,
        )
        values = chunk_reply(
            answer.actions, timing=timing, options=exchange.options, chunking=exchange.chunking
        )
        return encode_chunk_reply(values, exchange.dialect)

    def _on_displaced(self, robot: str | None) -> None:
        """A robot of this connection has connected elsewhere."""
        if robot == self._robot:
            self._connection.close(
                WSCloseCode.POLICY_VIOLATION, f"robot {robot!r} has connected again elsewhere"
            )

    def _model_in(self, path: str) -> str:
        named = path.removeprefix(MODELS_PATH) if path.startswith(MODELS_PATH) else ""
        return named or self._gateway.config.default


def _internal_error(error: BaseException) -> RefusedError:
    """Log a fault of ours under a number, and tell the client that number alone."""
    number = secrets.token_hex(4)
    log.error("request failed: error=%s", number, exc_info=error)
    return RefusedError(f"the server failed; its log has error {number}", code="failed")
