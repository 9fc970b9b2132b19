"""A server without a socket: a transport that answers from a script, and connections like it."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from takt.client.answer import Answer
from takt.client.leftover import Leftover
from takt.testing import ManualClock
from takt.units import MILLISECOND, Nanos
from takt.wire.limits import Limits
from takt.wire.msgpack_arrays import Dialect
from takt.wire.openpi import decode_observation, encode_reply

TAKT = {"takt": {"version": "0", "model": "echo"}}


def chunk(first: float = 0.0, *, horizon: int = 4, dim: int = 2) -> np.ndarray:
    """Actions that count up from ``first``, one per row."""
    return np.repeat(np.arange(horizon, dtype=np.float32)[:, None] + np.float32(first), dim, axis=1)


def reply(actions: object, **more: object) -> bytes:
    """A reply as a server sends it."""
    return encode_reply({"actions": actions, **more}, Dialect.OPENPI)


class ScriptedTransport:
    """Answers each message by the next entry of a script; an exception in it is raised."""

    def __init__(
        self,
        *script: bytes | str | Exception,
        clock: ManualClock | None = None,
        takes: Nanos = 5 * MILLISECOND,
    ) -> None:
        self._script = deque(script)
        self._clock = clock
        self._takes = takes
        self.sent: list[dict[str, Any]] = []
        self.timeouts: list[Nanos] = []
        self.is_closed = self.unread = False

    def send(self, message: bytes) -> None:
        self.sent.append(decode_observation(message, Limits()).values)

    def receive(self, timeout: Nanos) -> str | bytes:
        self.timeouts.append(timeout)
        if self._clock is not None:
            self._clock.advance(self._takes)
        said = self._script.popleft()
        if isinstance(said, Exception):
            raise said
        return said

    def has_unread(self) -> bool:
        return self.unread

    def close(self) -> None:
        self.is_closed = True


class FakeConnection:
    """Asks a function instead of a server, and says when it was closed."""

    def __init__(self, ask: Callable[[Mapping[str, object]], Answer]) -> None:
        self._ask = ask
        self.asked: list[dict[str, Any]] = []
        self.closed = threading.Event()

    def infer(
        self,
        observation: Mapping[str, object],
        *,
        due_in: Nanos | None = None,
        expires_in: Nanos | None = None,
        leftover: Leftover | None = None,
    ) -> Answer:
        offered = {} if leftover is None else {"leftover": leftover}
        self.asked.append({**observation, "due_in": due_in, "expires_in": expires_in, **offered})
        return self._ask(observation)

    def close(self) -> None:
        self.closed.set()


def answer(
    first: float = 0.0,
    *,
    horizon: int = 4,
    round_trip: Nanos = 10 * MILLISECOND,
    server: Nanos | None = 8 * MILLISECOND,
) -> Answer:
    """An answer whose chunk counts up from ``first``."""
    return Answer(actions=chunk(first, horizon=horizon), round_trip=round_trip, server=server)
