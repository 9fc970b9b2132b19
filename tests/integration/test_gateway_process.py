"""The life of a gateway process: what it says, what it survives, how it ends."""

import contextlib
import os
import random
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from tests.integration.gateway_server import TIMEOUT_S, GatewayServer, Process
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from takt.errors import RefusedError
from takt.wire.limits import Limits
from takt.wire.openpi import decode_reply, encode_observation
from takt.wire.openpi_options import RequestOptions

pytestmark = pytest.mark.integration

LIMITS = Limits()
NUM_ROBOTS = 16
NUM_KILLS = 5
FOR_EVER_MS = 600_000.0
"""An inference that does not end while a test runs."""


@contextlib.contextmanager
def serving(**options: Any) -> Iterator[GatewayServer]:  # noqa: ANN401 - passed on
    server = GatewayServer(**options)
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def greeted(
    server: GatewayServer, path: str = "/", headers: Mapping[str, str] | None = None
) -> Iterator[ClientConnection]:
    with server.dial(path, headers) as client:
        client.recv(TIMEOUT_S)
        yield client


def send(client: ClientConnection) -> None:
    """Send an observation, and wait until it has been read."""
    client.send(encode_observation({"observation/state": np.ones(3)}))
    assert client.ping().wait(TIMEOUT_S)


def ask(client: ClientConnection, state: np.ndarray) -> np.ndarray:
    client.send(encode_observation({"observation/state": state}))
    actions = decode_reply(client.recv(TIMEOUT_S), LIMITS).values["actions"]
    assert isinstance(actions, np.ndarray)
    return actions


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_a_killed_worker_costs_typed_errors_and_service_resumes_by_itself() -> None:
    with serving(options={"latency_ms": FOR_EVER_MS}) as server, greeted(server) as client:
        send(client)
        server.worker.kill()

        with pytest.raises(RefusedError) as caught:
            decode_reply(client.recv(TIMEOUT_S), LIMITS)
        assert caught.value.code == "worker_lost"
        with pytest.raises(RefusedError) as caught:
            ask(client, np.ones(3))
        assert caught.value.code == "worker_lost"

        assert server.gateway.wait_for("worker_lost")["worker"] == "w"
        server.restart_worker(latency_ms=0)
        server.gateway.wait_for("worker_back")
        np.testing.assert_array_equal(ask(client, np.ones(3))[0], np.ones(3))


def test_pings_handshakes_and_health_are_prompt_while_an_inference_runs() -> None:
    endless = {"latency_ms": FOR_EVER_MS}
    with serving(options=endless, slo_ms=FOR_EVER_MS) as server, greeted(server) as client:
        send(client)
        for _ in range(5):
            assert client.ping().wait(TIMEOUT_S)
            with greeted(server):
                pass
            with socket.create_connection(("127.0.0.1", server.port)) as raw:
                raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert raw.recv(15) == b"HTTP/1.1 200 OK"

        with pytest.raises(TimeoutError):  # the inference still runs
            client.recv(0)
        server.worker.kill()


def test_sigterm_answers_what_is_under_way_and_exits_cleanly() -> None:
    with serving(options={"latency_ms": 300}) as server, greeted(server) as client:
        send(client)
        server.gateway.popen.send_signal(signal.SIGTERM)

        actions = decode_reply(client.recv(TIMEOUT_S), LIMITS).values["actions"]
        assert isinstance(actions, np.ndarray)
        with pytest.raises(ConnectionClosed) as caught:
            client.recv(TIMEOUT_S)

        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1001
        assert server.gateway.wait_for("stopped")["counters"]["served"] == 1
        assert server.gateway.popen.wait(TIMEOUT_S) == 0


def test_the_end_of_the_supervisor_drains_like_sigterm() -> None:
    with serving() as server, greeted(server) as client:
        closing = in_thread(server.gateway.close)
        with pytest.raises(ConnectionClosed):
            client.recv(TIMEOUT_S)
        closing.join()
        assert server.gateway.popen.returncode == 0


def test_a_token_is_asked_for_and_two_ways_of_presenting_it_are_taken() -> None:
    with serving(token="s3cret") as server:
        with pytest.raises(InvalidStatus) as caught, server.dial():
            pass
        assert caught.value.response.status_code == 401
        for scheme in ("Api-Key", "Bearer"):
            headers = {"Authorization": f"{scheme} s3cret"}
            with greeted(server, headers=headers) as client:
                assert ask(client, np.ones(2)).shape == (50, 2)


@pytest.mark.parametrize(
    ("door", "words"),
    [({"host": "0.0.0.0", "port": 0}, "token"), ({"host": "127.0.0.1", "port": 70_000}, "70000")],
)
def test_a_door_that_must_not_open_ends_the_process(door: dict[str, Any], words: str) -> None:
    models = [{"name": "echo", "policy": "echo"}]
    config = {"gateway": {"name": "g", "workers": [], "models": models}, "openpi": door}
    process = Process("takt.server.gateway_process", config)

    assert process.popen.wait(TIMEOUT_S) == 1
    process.close()


def test_a_client_that_leaves_frees_its_place() -> None:
    with serving(options={"latency_ms": 200}, num_slots=1) as server:
        with greeted(server) as leaver:
            send(leaver)

        with greeted(server) as client:
            np.testing.assert_array_equal(ask(client, np.ones(3))[0], np.ones(3))


def test_connections_beyond_the_limit_of_descriptors_are_turned_away_and_others_served() -> None:
    with serving() as server, greeted(server) as older, contextlib.ExitStack() as crowd:
        pid = server.gateway.popen.pid
        in_use = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (in_use + 8, in_use + 8))

        strangers = [
            crowd.enter_context(socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S))
            for _ in range(40)
        ]
        turned_away = strangers[-1].recv(1)

        assert turned_away == b""
        np.testing.assert_array_equal(ask(older, np.ones(2))[0], [1, 1])


def test_a_client_that_makes_up_robots_takes_nobody_elses_place() -> None:
    limits = {"max_sessions": 8, "max_sessions_per_connection": 4}
    with serving(**limits) as server, greeted(server) as greedy:
        codes = [_code_of(greedy, robot=f"robot-{number}") for number in range(8)]
        with greeted(server, "/?robot=other") as other:
            np.testing.assert_array_equal(ask(other, np.ones(2))[0], [1, 1])

    assert codes == [None] * 3 + ["busy"] * 5  # the connection itself has the fourth


def _code_of(client: ClientConnection, *, robot: str) -> str | None:
    client.send(encode_observation({"observation/state": np.ones(2)}, RequestOptions(robot=robot)))
    try:
        decode_reply(client.recv(TIMEOUT_S), LIMITS)
    except RefusedError as error:
        return error.code
    return None


def test_second_connections_can_be_refused() -> None:
    with serving(second_connection="refuse") as server, greeted(server, "/?robot=arm") as first:
        with server.dial("/?robot=arm") as second, pytest.raises(ConnectionClosed) as caught:
            second.recv(TIMEOUT_S)

        assert caught.value.rcvd is not None
        assert caught.value.rcvd.reason.startswith("busy: robot 'arm' is connected already")
        assert ask(first, np.ones(2)).shape == (50, 2)


class Robot:
    """Asks again and again with states nobody else sends, and checks every answer."""

    def __init__(self, server: GatewayServer, number: int, stop: threading.Event) -> None:
        self.served = self.refused = 0
        self.wrong: list[str] = []
        self._server, self._number, self._stop = server, number, stop
        self.thread = in_thread(self._live)

    def _live(self) -> None:
        with greeted(self._server, f"/?robot=robot-{self._number}") as client:
            counter = 0
            while not self._stop.is_set():
                counter += 1
                self._ask(client, np.array([self._number, counter, -self._number], np.float32))

    def _ask(self, client: ClientConnection, state: np.ndarray) -> None:
        try:
            actions = ask(client, state)
        except RefusedError as error:
            self.refused += 1
            if error.code not in {"worker_lost", "busy"}:
                self.wrong.append(str(error))
            self._stop.wait(0.02)  # as a robot would: not at once
            return
        self.served += 1
        if not np.array_equal(actions[7], state + np.float32(7)):
            self.wrong.append(f"asked {state}, got {actions[0]}")


def every_robot(robots: list[Robot], fate: str) -> None:
    """Wait until each robot has been served, or refused, once more."""
    before, pause = [getattr(robot, fate) for robot in robots], threading.Event()
    while not all(getattr(r, fate) > past for r, past in zip(robots, before, strict=True)):
        assert all(robot.thread.is_alive() for robot in robots)
        pause.wait(0.001)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_echo_carries_the_origin_of_the_robot_that_asked_while_workers_are_killed(
    seed: int,
) -> None:
    draw = random.Random(seed)
    stop = threading.Event()
    with serving(options={"latency_ms": 4, "latency_per_row_ms": 0.2}) as server:
        robots = [Robot(server, number, stop) for number in range(1, NUM_ROBOTS + 1)]
        for _ in range(NUM_KILLS):
            every_robot(robots, "served")
            stop.wait(draw.uniform(0.0, 0.5))
            server.worker.kill()
            every_robot(robots, "refused")
            server.restart_worker()
            server.gateway.wait_for("worker_back")
        every_robot(robots, "served")
        stop.set()
        for robot in robots:
            robot.thread.join(TIMEOUT_S)

    assert [wrong for robot in robots for wrong in robot.wrong] == []
