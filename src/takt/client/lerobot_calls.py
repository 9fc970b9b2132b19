"""The four calls of LeRobot's gRPC service, each with an end to its wait.

This is the only module of the client that imports gRPC; :mod:`takt.client.lerobot` does so when it
connects. gRPC's errors become :class:`~takt.client.errors.ConnectionLostError`, or the
:class:`~takt.errors.RefusedError` that the server meant.

A gRPC channel connects again by itself and tells nobody. The server behind it may have been
restarted and know no policy any more, so a channel that is found without its connection counts as
lost here: whoever holds it connects anew, with a new handshake.
"""

import contextlib
import os
from collections.abc import Callable, Generator, Iterable
from typing import Any, cast

# gRPC's core writes to standard error what any peer does.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

from takt.client.errors import ConnectionLostError
from takt.errors import RefusedError
from takt.units import Nanos, to_seconds

__all__ = ["GrpcCalls"]

_SERVICE = "/transport.AsyncInference/"
_NEVER_MS = 2**31 - 1
_LOST = "no_session"
"""What Takt says to a connection that it does not know; another handshake helps."""
_MAX_CODE_LETTERS = 20
_READY: int = grpc.ChannelConnectivity.READY.value[0]
_Call = Callable[..., bytes]


class GrpcCalls:
    """One connection; see :class:`takt.client.lerobot.Calls`.

    Args:
        target: ``host:port``.
        max_reply_bytes: Largest message the server may send.
    """

    def __init__(self, target: str, *, max_reply_bytes: int) -> None:
        self._target = target
        self._is_closed = False
        self._channel = grpc.insecure_channel(
            f"dns:///{target}",
            [
                ("grpc.max_receive_message_length", max_reply_bytes),
                ("grpc.max_send_message_length", -1),
                # What failed is asked anew by rules of ours, with a newer observation.
                ("grpc.enable_retries", 0),
                # Channels of one process would share one connection, and a server of LeRobot's
                # protocol knows a robot by its connection.
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_http_proxy", 0),
                ("grpc.client_idle_timeout_ms", _NEVER_MS),
            ],
        )
        self._ready: _Call = self._channel.unary_unary(f"{_SERVICE}Ready")
        self._set_up: _Call = self._channel.unary_unary(f"{_SERVICE}SendPolicyInstructions")
        self._observe: _Call = self._channel.stream_unary(f"{_SERVICE}SendObservations")
        self._get_actions: _Call = self._channel.unary_unary(f"{_SERVICE}GetActions")

    def ready(self, timeout: Nanos) -> None:
        """See :meth:`takt.client.lerobot.Calls.ready`."""
        with self._errors(timeout, is_opening=True):
            self._ready(b"", timeout=to_seconds(timeout))

    def set_up(self, message: bytes, timeout: Nanos) -> None:
        """See :meth:`takt.client.lerobot.Calls.set_up`."""
        with self._errors(timeout):
            self._set_up(message, timeout=to_seconds(timeout))

    def observe(self, pieces: Iterable[bytes], timeout: Nanos) -> None:
        """See :meth:`takt.client.lerobot.Calls.observe`."""
        with self._errors(timeout):
            self._observe(iter(pieces), timeout=to_seconds(timeout))

    def get_actions(self, timeout: Nanos) -> bytes:
        """See :meth:`takt.client.lerobot.Calls.get_actions`."""
        with self._errors(timeout):
            return self._get_actions(b"", timeout=to_seconds(timeout))

    def close(self) -> None:
        """See :meth:`takt.client.lerobot.Calls.close`."""
        self._is_closed = True
        self._channel.close()

    @contextlib.contextmanager
    def _errors(self, timeout: Nanos, *, is_opening: bool = False) -> Generator[None, None, None]:
        try:
            if not is_opening and not _is_connected(self._channel):
                raise ConnectionLostError(f"{self._target} ended the connection", code="closed")
            yield
        except grpc.RpcError as error:
            raise self._meaning(cast("Any", error), timeout, is_opening=is_opening) from None
        except ValueError:  # what gRPC raises on a channel that was closed
            if not self._is_closed:
                raise
            raise ConnectionLostError("this connection is closed", code="closed") from None

    def _meaning(self, error: Any, timeout: Nanos, *, is_opening: bool) -> Exception:  # noqa: ANN401
        status: grpc.StatusCode = error.code()
        said = str(error.details() or "")
        if status is grpc.StatusCode.UNIMPLEMENTED:
            why = f"{self._target} speaks gRPC, but not LeRobot's asynchronous inference"
            return ConnectionLostError(why, code="unreachable")
        if status is grpc.StatusCode.DEADLINE_EXCEEDED:
            why = f"{self._target} did not answer for {to_seconds(timeout):g} s"
            return ConnectionLostError(why, code="unreachable" if is_opening else "timeout")
        if status is grpc.StatusCode.UNAVAILABLE and is_opening:
            return ConnectionLostError(
                f"cannot connect to {self._target}: {said}", code="unreachable"
            )
        code = _code_in(said)
        if status in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED} or code == _LOST:
            return ConnectionLostError(
                f"{self._target} ended the connection: {said}", code="closed", reason=said
            )
        return RefusedError(f"{self._target} refused: {said}", code=code)


def _is_connected(channel: Any) -> bool:  # noqa: ANN401
    # The public way, Channel.subscribe, polls in a thread that raises when it is overtaken by
    # Channel.close; this asks the same question of the same object.
    return channel._channel.check_connectivity_state(False) == _READY


def _code_in(said: str) -> str:
    """The code that Takt puts before its sentences; ``failed`` of any other server."""
    code, colon, _ = said.partition(": ")
    is_code = colon and len(code) <= _MAX_CODE_LETTERS and code.replace("_", "").islower()
    return code if is_code and code.replace("_", "").isalpha() else RefusedError.code
