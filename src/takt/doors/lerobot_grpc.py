"""The LeRobot door: unmodified clients of LeRobot's asynchronous inference, over gRPC.

The four calls of ``transport.AsyncInference`` carry bytes for :mod:`takt.wire.lerobot_messages`; no
code generated from a protocol file is needed. A robot is its connection: the protocol has no
names. ``Ready`` begins anew, ``SendPolicyInstructions`` names a model of this server (never one to
be loaded), ``SendObservations`` brings one observation in pieces, and ``GetActions`` waits up to
two seconds for a chunk.

What a stock server hides is said here, as a status with a sentence. ``UNAVAILABLE`` and
``DEADLINE_EXCEEDED`` are never used for it, since a stock client repeats such a call blindly. A
client that polls on after an error is answered a little later each time.

A connection that goes on without a handshake gets a session by the rules of
:mod:`takt.session.resuming`. Two clients of one process share a connection unnoticed; as soon as
two polls overlap, both are told, and neither gets an action of the other.

Start reading at :meth:`LerobotDoor.start`, then :meth:`LerobotDoor._send_observations`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar

# gRPC's own log repeats what any peer does; what is ours to know is logged here.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from grpc import aio

from takt.doors.access import AllowedNetworks, check_open_exposure
from takt.doors.lerobot_options import LerobotOptions
from takt.doors.lerobot_peers import Peer, Peers
from takt.doors.lerobot_records import SessionRecords
from takt.doors.lerobot_robot import internal_error
from takt.doors.lerobot_sessions import Sessions
from takt.doors.limits import DoorLimits, door_limits
from takt.errors import ConfigError, RefusedError, WireError
from takt.gateway.gateway import Gateway
from takt.units import SECOND, Nanos, to_seconds
from takt.wire.lerobot import decode_observation, decode_setup
from takt.wire.lerobot_messages import (
    Fragment,
    ObservationAssembler,
    decode_observation_message,
    decode_policy_setup_message,
    encode_actions_message,
)
from takt.wire.limits import Limits

__all__ = ["SERVICE", "LerobotDoor"]

log = logging.getLogger(__name__)

SERVICE = "transport.AsyncInference"
"""Name of LeRobot's service."""

_PATIENCE: Nanos = 2 * SECOND
"""How long a poll waits for an observation; LeRobot's own default."""
_UPLOAD_S = 10.0
"""Time one observation may take to arrive."""
_MESSAGE_BYTES = 4 * 2**20 + 1024
"""Longest message: gRPC's default, which is what LeRobot's server takes, and its frame."""
_STREAMS = 6
"""Calls of one connection at once; a robot has two. gRPC may hold a message of each."""
_WINDOW_BYTES = 2 * 2**20
"""Bytes of a call that gRPC takes in before they are asked for: 100 MB a second at 20 ms."""
_OBSERVATION_BYTES = 32 * 2**20
"""Longest observation, whatever the models allow: five cameras of 1280 x 720 and as much again."""
_MAX_UPLOADS = 2
"""Observations of one connection that may be arriving at once."""
_SWEEP_S = 2.0
_SAVE_S = 0.5
_MAX_SENTENCE = 1000

_STATUS = {
    "wire": grpc.StatusCode.INVALID_ARGUMENT,
    "observation": grpc.StatusCode.INVALID_ARGUMENT,
    "limit": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "busy": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "unknown_model": grpc.StatusCode.NOT_FOUND,
    "features": grpc.StatusCode.FAILED_PRECONDITION,
    "no_session": grpc.StatusCode.FAILED_PRECONDITION,
    "shared": grpc.StatusCode.FAILED_PRECONDITION,
    "unauthorized": grpc.StatusCode.PERMISSION_DENIED,
    "failed": grpc.StatusCode.INTERNAL,
}
"""Status of a refusal by its code; ABORTED for what happens to a request on its way."""

T = TypeVar("T")


class _Context(Protocol):
    """What gRPC tells of a call."""

    def peer(self) -> str:
        """Who called."""
        ...

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call with an error."""
        ...


_Act: TypeAlias = Callable[[Peer, Any], Awaitable[bytes]]


class LerobotDoor:
    """Serves a gateway's models to LeRobot's robot clients.

    Create it on the gateway's event loop.

    Args:
        gateway: Whose models.
        options: Where it listens, who may come, and the models' options.
        limits: What clients may do; None: derived from the models.
        clock: Monotonic, in nanoseconds; the gateway's.

    Raises:
        ConfigError: An option is impossible, or kept sessions cannot be read.
    """

    def __init__(
        self,
        gateway: Gateway,
        options: LerobotOptions,
        *,
        limits: DoorLimits | None = None,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        self.counters: Counter[str] = Counter()
        """Calls, refusals by code, observations by what became of them, and chunks."""
        self.limits = limits if limits is not None else _limits_of(gateway)
        self._are_limits_given = limits is not None
        self._limited = gateway.models
        self._gateway = gateway
        self._options = options
        self._clock = clock
        self._networks = AllowedNetworks(options.allow_from)
        directory = None if options.state_dir is None else Path(options.state_dir)
        self._records = SessionRecords(directory, clock())
        self._sessions = Sessions(gateway, options, self._records, clock)
        self._peers = Peers(self.limits, self._records, clock)
        self._server: aio.Server | None = None
        self._drain_reason: str | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # Life

    async def start(self) -> tuple[str, int]:
        """Bind and serve.

        Returns:
            The address and the port that were bound.

        Raises:
            ConfigError: The address cannot or must not be bound.
        """
        host, port = self._options.host, self._options.port
        check_open_exposure(host, self._networks, door="lerobot")
        server = aio.server(
            options=[
                ("grpc.max_receive_message_length", _MESSAGE_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", _STREAMS),
                ("grpc.max_allowed_incoming_connections", self.limits.max_connections),
                # A fixed window: one that follows the link grows to hundreds of MiB on a fast one.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
                # Two servers on one port would share the robots between them by chance.
                ("grpc.so_reuseport", 0),
                # A robot that lost its cable is noticed within the minute, and cancelled.
                ("grpc.keepalive_time_ms", 20_000),
                ("grpc.keepalive_timeout_ms", 20_000),
                ("grpc.keepalive_permit_without_calls", 1),
            ],
        )
        server.add_generic_rpc_handlers((self._handlers(),))
        try:
            bound = server.add_insecure_port(_netloc(host, port))
        except (RuntimeError, OverflowError):
            raise ConfigError(f"cannot listen on {host} port {port}: is it taken?") from None
        await server.start()
        self._server = server
        self._tasks = [asyncio.create_task(self._sweep()), asyncio.create_task(self._keep())]
        return host, bound

    def stop_listening(self) -> None:
        """Let the polls that wait go; what is being computed is still delivered."""
        self._drain_reason = "the server is being stopped"
        self._peers.let_go()

    async def close(self, reason: str) -> None:
        """Close every connection."""
        self._drain_reason = reason
        for task in self._tasks:
            task.cancel()
        self._peers.close()
        self._records.save()
        if self._server is not None:
            await self._server.stop(0.5)

    def statistics(self) -> dict[str, int]:
        """Every counter by name."""
        return {
            **{f"lerobot.{name}": count for name, count in self.counters.items()},
            "lerobot.open_connections": len(self._peers),
            "lerobot.records": len(self._records),
            "lerobot.uploading_bytes": self._peers.uploading_bytes,
        }

    @property
    def _message_limits(self) -> Limits:
        """What one message may hold; follows the models, which come and go."""
        if self._limited != self._gateway.models and not self._are_limits_given:
            self._limited = self._gateway.models
            self.limits = replace(self.limits, message=_limits_of(self._gateway).message)
        return self.limits.message

    def _handlers(self) -> grpc.GenericRpcHandler:
        unary = grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Ready": unary(partial(self._call, self._ready)),
                "SendPolicyInstructions": unary(partial(self._call, self._set_up)),
                "SendObservations": grpc.stream_unary_rpc_method_handler(
                    partial(self._call, self._send_observations)
                ),
                "GetActions": unary(partial(self._call, self._get_actions)),
            },
        )

    async def _call(self, act: _Act, request: Any, context: _Context) -> bytes:  # noqa: ANN401
        """Do one call; whatever goes wrong becomes a status with a sentence."""
        self.counters["calls"] += 1
        peer = None
        try:
            peer = self._admit(context.peer())
            with self._peers.calling(peer):
                answer = await act(peer, request)
        # The error itself must not outlive its clause: it would hold this frame, which held it, and
        # with both the whole observation until the collector comes by.
        except RefusedError as error:
            code, sentence = error.code, _sentence(error)
        except Exception as error:  # noqa: BLE001 - a fault of ours is answered, too
            code, sentence = "failed", _sentence(internal_error(error))
        else:
            return answer
        self.counters[f"refused.{code}"] += 1
        if peer is not None and act == self._get_actions:
            await peer.slow_down()
        return await context.abort(_STATUS.get(code, grpc.StatusCode.ABORTED), sentence)

    def _admit(self, name: str) -> Peer:
        peer = self._peers.find(name)
        if peer is None:
            address = _address_of(name)
            if self._networks and not self._networks.admits(address):
                raise RefusedError(
                    "unauthorized: this server takes no robots from your address",
                    code="unauthorized",
                )
            peer = self._peers.add(name, address)
            self.counters["connections"] += 1
        peer.rate.charge(self._clock())
        return peer

    # Calls

    async def _ready(self, peer: Peer, request: bytes) -> bytes:
        del request
        peer.begin_anew()
        return b""

    async def _set_up(self, peer: Peer, request: bytes) -> bytes:
        setup = decode_setup(decode_policy_setup_message(request), self._message_limits)
        model = self._sessions.set_up(peer, setup)
        log.info("robot set up: peer=%s model=%s", peer.name, model)
        return b""

    async def _send_observations(self, peer: Peer, request: AsyncIterator[bytes]) -> bytes:
        handshakes = peer.num_handshakes
        data = await self._read(peer, request)
        arrival = self._clock()
        if peer.num_handshakes != handshakes:
            raise RefusedError(
                "the connection began anew while this observation arrived", code="cancelled"
            )
        observation = decode_observation(data, self._message_limits)
        if peer.robot is None:
            found = self._sessions.resume(peer, observation)
            self.counters["resumed"] += 1
            log.warning(
                "robot goes on without a handshake: peer=%s model=%s from=%s",
                peer.name,
                found.model,
                "the only model" if found.used is None else "a session that ended",
            )
        assert peer.robot is not None
        verdict = peer.robot.offer(observation, arrival)
        self.counters[f"observations.{verdict.value}"] += 1
        if peer.record is not None:
            self._records.reached(peer.record, observation.timestep)
        return b""

    async def _get_actions(self, peer: Peer, request: bytes) -> bytes:
        del request
        await peer.take_poll()
        try:
            chunk = await self._poll(peer)
        finally:
            peer.leave_poll()
        if chunk:
            self.counters["chunks"] += 1
            peer.went_well()
        return encode_actions_message(chunk)

    async def _poll(self, peer: Peer) -> bytes:
        robot = await peer.wait_for_robot(_PATIENCE)
        if self._drain_reason is not None and (robot is None or not robot.is_busy):
            raise RefusedError(f"no new inferences: {self._drain_reason}", code="draining")
        if robot is None:
            return b""
        chunk = await robot.next_chunk(_PATIENCE)
        if chunk:
            await peer.look_for_stranger()
        peer.check()
        return chunk if robot is peer.robot else b""

    async def _read(self, peer: Peer, request: AsyncIterator[bytes]) -> Fragment:
        """One observation, joined."""
        joining = ObservationAssembler(
            min(_OBSERVATION_BYTES, self._message_limits.max_message_bytes),
            limit_fragments=self.limits.max_fragments,
        )
        whole: Fragment | None = None
        with self._peers.uploading(peer, joining, most=_MAX_UPLOADS):
            try:
                async with asyncio.timeout(_UPLOAD_S):
                    async for message in request:
                        pause = peer.upload.pause(len(message), self._clock())
                        if pause:
                            await asyncio.sleep(to_seconds(pause))
                        joined = self._peers.join(joining, *decode_observation_message(message))
                        whole = joined if joined is not None else whole
            except TimeoutError:
                raise WireError(f"Observation: expected it within {_UPLOAD_S:g} s") from None
        joining.finish()
        assert whole is not None
        return whole

    # Housekeeping

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            self._peers.sweep()

    async def _keep(self) -> None:
        """Write kept sessions, at most so often, on another thread."""
        loop = asyncio.get_running_loop()
        while self._records.is_kept:
            await asyncio.sleep(_SAVE_S)
            if self._records.is_dirty:
                self._records.is_dirty = False
                await loop.run_in_executor(None, self._records.write, self._records.content())


def _limits_of(gateway: Gateway) -> DoorLimits:
    return door_limits(gateway.spec(name) for name in gateway.models)


def _netloc(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _address_of(peer: str) -> str:
    """The address in gRPC's name of a peer, such as ``ipv4:10.0.0.7:50123``; empty if none."""
    kind, _, rest = peer.partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return ""
    host = rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "")
    return host.strip("[]").partition("%")[0]


def _sentence(error: RefusedError) -> str:
    text = f"{error.code}: {error}"[:_MAX_SENTENCE]
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
