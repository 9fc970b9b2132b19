"""The client against servers on loopback: well-behaved, broken, silent and absent."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.integration.openpi_server import CutError, echo, openpi_server
from tests.integration.ports import reserved_port
from websockets.sync.server import ServerConnection
from websockets.utils import accept_key

from takt.client import BackgroundClient, Backoff, ConnectionLostError, connect
from takt.errors import InvariantError, ObservationError, RefusedError, UsageError
from takt.units import MILLISECOND, ms, seconds
from takt.wire.limits import Limits
from takt.wire.openpi_errors import encode_error
from takt.wire.openpi_options import ErrorForm

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0
TAKT = {"takt": {"version": "0", "model": "echo"}}


def observation(first: float = 1.0) -> dict[str, object]:
    return {
        "observation/image": np.zeros((112, 112, 3), np.uint8),
        "observation/state": np.array([first, 2.0], np.float32),
        "prompt": "wave",
    }


@contextlib.contextmanager
def tcp_server(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that is no WebSocket server; ``talk`` gets the one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve() -> None:
            with contextlib.suppress(OSError):
                peer, _ = listener.accept()
                with peer:
                    talk(peer)
                    done.wait(PATIENCE_S)

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listener.getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            done.set()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_stock_server_is_asked_and_answers() -> None:
    paths: list[str] = []
    with (
        openpi_server(metadata={"reset_pose": [0.5]}, paths=paths) as address,
        connect(address, model="pi0", robot="arm-7") as connection,
    ):
        answer = connection.infer(observation(3.0))

    assert np.array_equal(answer.actions[:2], [[3.0, 2.0], [4.0, 3.0]])
    assert connection.metadata == {"reset_pose": [0.5]}
    assert paths == ["/v1/models/pi0?robot=arm-7"]
    assert answer.server == ms(0.5)
    assert answer.sequence is None


def test_takt_is_told_more_and_says_more() -> None:
    with openpi_server(metadata=TAKT) as address, connect(address) as connection:
        answers = [connection.infer(observation(), due_in=ms(20)) for _ in range(2)]

    assert [answer.sequence for answer in answers] == [0, 1]
    assert answers[0].stages == {"prefix": ms(0.25)}
    assert connection.model == "echo"


def test_a_stock_server_that_answers_twice_is_left() -> None:
    def twice(values: dict[str, Any], connection: ServerConnection) -> bytes:
        said = echo(values, connection)
        connection.send(said)
        return said

    with openpi_server(twice) as address, connect(address) as connection:

        def ask_on() -> None:
            for _ in range(1000):  # the second answer may come a moment after the first
                connection.infer(observation())

        with pytest.raises(InvariantError, match="nobody asked for"):
            ask_on()


def test_a_text_error_leaves_the_connection_usable() -> None:
    script = iter(["expired: 80 ms too late"])

    def respond(values: dict[str, Any], connection: ServerConnection) -> bytes | str:
        return next(script, None) or echo(values, connection)

    with openpi_server(respond) as address, connect(address) as connection:
        with pytest.raises(RefusedError, match="80 ms too late") as caught:
            connection.infer(observation())
        answer = connection.infer(observation(5.0))

    assert caught.value.code == "expired"
    assert answer.actions[0, 0] == 5.0


def test_an_error_in_a_map_names_the_key() -> None:
    error = ObservationError("observation/state", expected="4 values", received="2 values")
    refusal = encode_error(error, ErrorForm.MAP)

    with (
        openpi_server(lambda values, connection: refusal, metadata=TAKT) as address,
        connect(address) as connection,
        pytest.raises(ObservationError, match="expected 4 values, got 2 values"),
    ):
        connection.infer(observation())


def test_a_stock_servers_traceback_is_an_error_and_its_close_the_next() -> None:
    def respond(values: dict[str, Any], connection: ServerConnection) -> None:
        connection.send("Traceback (most recent call last):\nKeyError: 'image'")
        connection.close(1011, "Internal server error. Traceback included in previous frame.")

    with openpi_server(respond) as address, connect(address) as connection:
        with pytest.raises(RefusedError, match="KeyError: 'image'"):
            connection.infer(observation())
        with pytest.raises(ConnectionLostError, match=r"code 1011: Internal server") as caught:
            connection.infer(observation())

    assert caught.value.code == "closed"


def test_a_connection_that_is_cut_while_an_answer_is_awaited_is_lost() -> None:
    def respond(values: dict[str, Any], connection: ServerConnection) -> None:
        raise CutError

    with (
        openpi_server(respond) as address,
        connect(address) as connection,
        pytest.raises(ConnectionLostError, match="without a close frame"),
    ):
        connection.infer(observation())


def test_silence_ends_after_the_timeout() -> None:
    with (
        openpi_server(lambda values, connection: None) as address,
        connect(address, answer_timeout=50 * MILLISECOND) as connection,
        pytest.raises(ConnectionLostError, match=r"sent nothing for 0.05 s") as caught,
    ):
        connection.infer(observation())

    assert caught.value.code == "timeout"


def test_closing_from_another_thread_ends_the_wait() -> None:
    asked = threading.Event()
    caught: list[BaseException] = []

    def respond(values: dict[str, Any], connection: ServerConnection) -> None:
        asked.set()

    with openpi_server(respond) as address:
        connection = connect(address)

        def ask() -> None:
            try:
                connection.infer(observation())
            except ConnectionLostError as error:
                caught.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        assert asked.wait(PATIENCE_S)
        connection.close()
        thread.join(PATIENCE_S)

    assert len(caught) == 1


def test_a_server_that_stops_reading_does_not_hold_the_client() -> None:
    big = {"observation/image": np.zeros((4000, 4000, 3), np.uint8)}

    with tcp_server(_greet_and_read_no_more) as address:
        connection = connect(address, connect_timeout=seconds(2))  # and for each piece to be taken
        with pytest.raises(ConnectionLostError, match="takes no more bytes") as caught:
            connection.infer(big)

    assert caught.value.code == "timeout"


def _greet_and_read_no_more(peer: socket.socket) -> None:
    """Answer the handshake and greet with an empty map."""
    request = b""
    while b"\r\n\r\n" not in request:
        request += peer.recv(4096)
    fields = dict(line.split(": ") for line in request.decode().split("\r\n") if ": " in line)
    peer.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        + f"Sec-WebSocket-Accept: {accept_key(fields['Sec-WebSocket-Key'])}\r\n\r\n".encode()
        + b"\x82\x01\x80"
    )


def test_an_answer_beyond_the_limits_is_not_collected() -> None:
    with (
        openpi_server() as address,
        connect(address, limits=Limits(max_message_bytes=200)) as connection,
        pytest.raises(ConnectionLostError, match="more than a message may hold") as caught,
    ):
        connection.infer(observation())

    assert caught.value.code == "closed"


def test_a_token_opens_the_door_and_a_wrong_one_does_not() -> None:
    with openpi_server(token="secret") as address:
        connect(address, token="secret").close()

        with pytest.raises(RefusedError, match="wrong token") as caught:
            connect(address, token="guess")

    assert caught.value.code == "unauthorized"


def test_an_unknown_model_is_refused_by_name() -> None:
    with openpi_server() as address, pytest.raises(RefusedError, match="models: echo") as caught:
        connect(address, model="nothing")

    assert caught.value.code == "unknown_model"


def test_a_server_that_greets_with_an_error_is_understood() -> None:
    with (
        openpi_server(greet="draining: this server is about to stop") as address,
        pytest.raises(RefusedError, match="about to stop") as caught,
    ):
        connect(address)

    assert caught.value.code == "draining"


def test_a_server_that_closes_at_once_and_says_why_refuses() -> None:
    with (
        openpi_server(farewell="busy: robot 'arm' is connected already") as address,
        pytest.raises(RefusedError, match="robot 'arm' is connected already") as caught,
    ):
        connect(address, robot="arm")

    assert caught.value.code == "busy"


def test_a_server_that_closes_at_once_and_does_not_say_why_is_lost() -> None:
    with (
        openpi_server(farewell="Bye!") as address,
        pytest.raises(ConnectionLostError, match="code 1008: Bye!") as caught,
    ):
        connect(address)

    assert (caught.value.code, caught.value.reason) == ("closed", "Bye!")


@pytest.mark.parametrize("token", ["", "two words", "line\r\nX-Evil: 1", "schlüssel"])
def test_a_token_that_no_header_can_hold_is_refused(token: str) -> None:
    with openpi_server() as address, pytest.raises(UsageError, match="token"):
        connect(address, token=token)


def test_a_port_where_nobody_listens_is_named() -> None:
    with (
        reserved_port() as port,
        pytest.raises(ConnectionLostError, match=f"127.0.0.1:{port}: Connection refused") as caught,
    ):
        connect(f"127.0.0.1:{port}")

    assert caught.value.code == "unreachable"


def test_a_server_that_never_answers_the_handshake_is_given_up() -> None:
    with (
        tcp_server(lambda peer: None) as address,
        pytest.raises(ConnectionLostError, match="does not answer") as caught,
    ):
        connect(address, connect_timeout=50 * MILLISECOND)

    assert caught.value.code == "unreachable"


@pytest.mark.parametrize(
    "said",
    [
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_a_server_of_another_kind_is_told_apart(said: bytes) -> None:
    def talk(peer: socket.socket) -> None:
        peer.recv(4096)
        peer.sendall(said)
        peer.shutdown(socket.SHUT_RDWR)

    with tcp_server(talk) as address, pytest.raises(ConnectionLostError) as caught:
        connect(address)

    assert caught.value.code == "unreachable"


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    with openpi_server() as address, connect(address) as connection:
        assert connection.infer(observation()).actions.shape == (50, 2)


def test_a_robot_in_the_background_survives_a_restart_of_the_server() -> None:
    with reserved_port() as port:
        client = BackgroundClient(
            partial(connect, f"127.0.0.1:{port}"),
            control_hz=50.0,
            backoff=Backoff(base=1, most=MILLISECOND),
        )
        with openpi_server(metadata=TAKT, port=port):
            client.start()
            _run_until(client, lambda: client.status().answered >= 3)
        _run_until(client, lambda: client.status().failures.get("unreachable", 0) >= 1)
        before = client.status().answered

        with openpi_server(metadata=TAKT, port=port):
            _run_until(client, lambda: client.status().answered >= before + 3)
            client.close()

    status = client.status()
    assert status.sent >= status.answered + sum(status.failures.values()) - 1
    assert status.network > 0


def _run_until(client: BackgroundClient, done: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(20_000):
        if done():
            return
        client.observe(observation())
        client.next_action()
        pause.wait(0.001)
    pytest.fail(f"not within 20,000 ticks: {client.status()}")
