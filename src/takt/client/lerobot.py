"""Asks a LeRobot policy server for action chunks, in place of LeRobot's own robot client.

For a team that changes the robots' side first and the server later: the server is LeRobot's own
(``lerobot.async_inference.policy_server``, 0.3 to 0.6) or Takt's LeRobot door. A
:class:`LerobotConnection` stands where a :class:`~takt.client.connection.Connection` would, so
:class:`~takt.client.loop.ControlLoop` keeps all its rules for a server that is late or gone::

    ControlLoop(robot, partial(connect_lerobot, "gpu-host:8080", policy_type="act", ...))

What a stock server does, and what is done about it here:

- It drops observations that look like the last one, silently. Ours always say that they must go.
- It serves one robot: two robots take each other's chunks. Every chunk is checked to be for the
  very observation that was sent, and one that is not ends the connection.
- It answers an inference that failed with nothing, as it does when there was nothing to do.
  Nothing, after an observation was taken, is an error here.
- It loads the policy anew at every handshake, and a new connection needs one. Choose
  ``answer_timeout`` longer than its slowest inference.

A server of LeRobot's executes what it is sent (it unpickles), and so does LeRobot's client with
what it gets. This client does not: replies are read by :mod:`takt.wire.lerobot`.

gRPC comes with the extra ``lerobot`` and is imported by the first :func:`connect_lerobot`.

Start reading at :meth:`LerobotConnection.infer`.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from takt.client.address import split_address
from takt.client.answer import Answer, checked_actions
from takt.client.closing import Closing
from takt.client.errors import ConnectionLostError
from takt.client.lerobot_values import HardwareFeatures, features_of, values_of
from takt.errors import ConfigError, InvariantError, RefusedError, UsageError
from takt.units import SECOND, Nanos
from takt.wire.lerobot import (
    LerobotActions,
    LerobotObservation,
    LerobotSetup,
    decode_actions,
    encode_observation,
    encode_setup,
)
from takt.wire.lerobot_messages import (
    decode_actions_message,
    encode_observation_message,
    encode_policy_setup_message,
    split_observation,
)
from takt.wire.lerobot_objects import Spelling
from takt.wire.limits import Limits

__all__ = ["DEFAULT_PORT", "Calls", "LerobotConnection", "connect_lerobot"]

DEFAULT_PORT = 8080
"""LeRobot's port, for an address without one."""

_VALUES_PER_ACTION = 64
"""Values of a message that one action may need; the most wasteful server needs about twenty."""
_SPARE_VALUES = 4096
_MAX_REPLY_BYTES = 256 * 2**20
"""A stock server sends the whole chunk once per action."""


class Calls(Protocol):
    """LeRobot's service; :class:`~takt.client.lerobot_calls.GrpcCalls` is the real one.

    Every call raises :class:`~takt.client.errors.ConnectionLostError` when the connection is lost
    or ``timeout`` has passed, and :class:`~takt.errors.RefusedError` when the server says no.
    """

    def ready(self, timeout: Nanos) -> None:
        """Begin anew."""
        ...

    def set_up(self, message: bytes, timeout: Nanos) -> None:
        """Say which policy is to answer, and what the robot sends."""
        ...

    def observe(self, pieces: Iterable[bytes], timeout: Nanos) -> None:
        """Send the pieces of one observation; the server has them when this returns."""
        ...

    def get_actions(self, timeout: Nanos) -> bytes:
        """Wait for a chunk; empty when there is none."""
        ...

    def close(self) -> None:
        """End the connection. Another thread may do so; a call under way then ends."""
        ...


def connect_lerobot(
    address: str,
    *,
    policy_type: str,
    pretrained_name_or_path: str,
    features: HardwareFeatures,
    actions_per_chunk: int,
    device: str = "cpu",
    rename_map: Mapping[str, str] | None = None,
    spelling: Spelling = Spelling.ASYNC_INFERENCE,
    connect_timeout: Nanos = 10 * SECOND,
    load_timeout: Nanos = 300 * SECOND,
    answer_timeout: Nanos = 10 * SECOND,
    limits: Limits | None = None,
    clock: Callable[[], Nanos] = time.monotonic_ns,
) -> "LerobotConnection":
    """Connect to a LeRobot policy server and have it load a policy.

    Args:
        address: ``host``, ``host:port`` or ``[ipv6]:port``; LeRobot's port 8080 when it is left
            out.
        policy_type: LeRobot's name of the architecture, ``act`` or ``smolvla`` for example.
        pretrained_name_or_path: The checkpoint, as the *server* finds it.
        features: What the robot observes: a LeRobot robot's ``observation_features``.
        actions_per_chunk: Most actions of a chunk.
        device: Where the policy is to run, on the server.
        rename_map: Keys of the robot to keys of the policy. An empty one also replaces the one
            saved with the checkpoint.
        spelling: ``Spelling.SCRIPTS_SERVER`` for servers of LeRobot 0.3.
        connect_timeout: Longest wait until the server has said that it is ready.
        load_timeout: Longest wait until it has loaded the policy.
        answer_timeout: Longest wait for a chunk. After it the connection is lost, and the next one
            has the policy loaded anew.
        limits: What a chunk may ask for; by default, what ``actions_per_chunk`` needs.
        clock: Monotonic, in nanoseconds.

    Returns:
        An open connection. Close it, or use it as a context manager.

    Raises:
        UsageError: The address or a feature is none.
        ConfigError: gRPC is not installed.
        ConnectionLostError: There is no server that speaks this protocol, or it did not load the
            policy in time.
        RefusedError: The server cannot load the policy, or refuses the robot.
    """
    target = _target(address)
    if actions_per_chunk < 1:
        raise UsageError(f"actions_per_chunk: expected 1 or more, got {actions_per_chunk}")
    limits = limits or _limits_for(actions_per_chunk)
    setup = LerobotSetup(
        policy_type=policy_type,
        pretrained_name_or_path=pretrained_name_or_path,
        features=features_of(features),
        actions_per_chunk=actions_per_chunk,
        device=device,
        rename_map=rename_map or {},
        spelling=spelling,
    )
    message = encode_policy_setup_message(encode_setup(setup))
    calls = _open(target, max_reply_bytes=limits.max_message_bytes)
    try:
        calls.ready(connect_timeout)
        calls.set_up(message, load_timeout)
    except BaseException:
        calls.close()
        raise
    return LerobotConnection(
        calls, setup, answer_timeout=answer_timeout, limits=limits, clock=clock
    )


class LerobotConnection(Closing):
    """One robot's connection to a LeRobot server, after the handshake.

    It is for one thread at a time; only :meth:`close` may be called from another one, and ends an
    :meth:`infer` that waits. After a :class:`~takt.client.errors.ConnectionLostError` it stays
    closed: connect again.

    Args:
        calls: The server.
        setup: What the handshake said.
        answer_timeout: Longest wait for an answer.
        limits: What an answer may ask for.
        clock: Monotonic, in nanoseconds.
        wall_clock: Seconds since 1970, which the protocol wants of every observation. The server
            shows what it makes of it in its log, and no more.
        first_timestep: Number of the first observation; by default one that no other robot has.
    """

    def __init__(
        self,
        calls: Calls,
        setup: LerobotSetup,
        *,
        answer_timeout: Nanos = 10 * SECOND,
        limits: Limits | None = None,
        clock: Callable[[], Nanos] = time.monotonic_ns,
        wall_clock: Callable[[], float] = time.time,  # noqa: TID251 - the protocol wants it
        first_timestep: int | None = None,
    ) -> None:
        self._calls = calls
        self._setup = setup
        self._answer_timeout = answer_timeout
        self._limits = limits or _limits_for(setup.actions_per_chunk)
        self._clock = clock
        self._wall_clock = wall_clock
        self._timestep = secrets.randbits(31) if first_timestep is None else first_timestep
        self._closed = False

    @property
    def model(self) -> str:
        """The checkpoint that answers."""
        return self._setup.pretrained_name_or_path

    def infer(
        self,
        observation: Mapping[str, object],
        *,
        due_in: Nanos | None = None,
        expires_in: Nanos | None = None,
    ) -> Answer:
        """Ask for a chunk and wait for it.

        Args:
            observation: By the robot's own keys, as LeRobot's ``get_observation`` gives them, with
                ``task``; or by openpi's keys, see :mod:`takt.client.lerobot_values`.
            due_in: The protocol has no place for it.
            expires_in: The same.

        Returns:
            The answer to this observation; its first action is the one for the instant at which
            the observation was taken.

        Raises:
            UsageError: The observation is not what the handshake announced.
            RefusedError: The server gave no chunk; a stock server's log says why. The connection
                stays usable.
            WireError: The answer is no chunk of finite numbers.
            ConnectionLostError: The server went away or fell silent, or the connection was closed
                before; it is closed now.
            InvariantError: The server answered another observation, as one does that serves
                several robots at once; the connection is closed now.
        """
        del due_in, expires_in
        if self._closed:
            raise ConnectionLostError("this connection is closed; connect again", code="closed")
        pieces = self._pieces(observation)
        sent = self._clock()
        try:
            reply = self._exchange(pieces, sent + self._answer_timeout)
        except ConnectionLostError:
            self.close()
            raise
        round_trip = self._clock() - sent
        chunk = decode_actions(reply, self._limits)
        self._check_place(chunk)
        actions = checked_actions(chunk.actions)
        actions.flags.writeable = False
        return Answer(actions=actions, round_trip=round_trip)

    def close(self) -> None:
        """End the connection; closing twice does nothing."""
        self._closed = True
        self._calls.close()

    def _pieces(self, observation: Mapping[str, object]) -> list[bytes]:
        """The messages of an observation, under a number of its own."""
        values = values_of(observation, self._setup.features)
        # A number of ours, and not that of the robot's next action: what counts actions is the
        # robot's queue, and numbers that never come again tell whose chunk a chunk is.
        self._timestep += 1
        data = encode_observation(
            LerobotObservation(
                timestamp=self._wall_clock(),
                timestep=self._timestep,
                must_go=True,
                values=values,
                spelling=self._setup.spelling,
            )
        )
        return [encode_observation_message(*piece) for piece in split_observation(data)]

    def _exchange(self, pieces: Iterable[bytes], give_up: Nanos) -> memoryview:
        """Send an observation and wait for its chunk."""
        self._calls.observe(pieces, give_up - self._clock())
        message = self._calls.get_actions(max(1, give_up - self._clock()))
        reply = decode_actions_message(message)
        if not len(reply):
            raise RefusedError(
                "the server took the observation and has no actions for it: its inference failed"
                " (a stock server says why in its own log alone), or another robot took the chunk"
            )
        return reply

    def _check_place(self, chunk: LerobotActions) -> None:
        """Refuse what answers another observation, or leaves actions out."""
        first = self._timestep
        if chunk.timesteps != tuple(range(first, first + len(chunk.timesteps))):
            self.close()
            raise InvariantError(
                f"the answer has the timesteps {chunk.timesteps[0]} to {chunk.timesteps[-1]} and"
                f" not those from {first} on; does another robot use this server?"
            )


def _open(target: str, *, max_reply_bytes: int) -> Calls:
    try:
        from takt.client.lerobot_calls import GrpcCalls  # imports gRPC
    except ImportError as error:
        raise ConfigError(f"gRPC comes with: pip install 'takt-serve[lerobot]' ({error})") from None
    return GrpcCalls(target, max_reply_bytes=max_reply_bytes)


def _target(address: str) -> str:
    split = split_address(f"//{address}")
    if split is None or split[0].netloc != address:
        raise UsageError(f"address {address!r}: expected host:port, such as 127.0.0.1:8080")
    parts, host = split
    port = parts.port or DEFAULT_PORT
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _limits_for(actions_per_chunk: int) -> Limits:
    return Limits(
        max_message_bytes=_MAX_REPLY_BYTES,
        max_decoded_bytes=_MAX_REPLY_BYTES,
        max_values=_VALUES_PER_ACTION * actions_per_chunk + _SPARE_VALUES,
        max_arrays=2 * actions_per_chunk + 64,
    )
