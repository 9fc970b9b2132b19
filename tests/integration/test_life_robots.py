"""Robots that leave, crowd, send nonsense or connect twice, and robots under random kills."""

import contextlib
import os
import random
import select
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from tests.integration.gateway_server import TIMEOUT_S, GatewayServer
from tests.integration.life import PATIENT, Server, refusal, serving, state
from websockets.sync.client import ClientConnection

from takt.client import Connection, ConnectionLostError, connect
from takt.errors import RefusedError
from takt.policies.echo import FAIL_STATE
from takt.wire.limits import Limits
from takt.wire.openpi import decode_reply, encode_observation

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LIMITS = Limits()
NUM_ROBOTS = 16
NUM_REQUESTS = 60
"""Of each robot, at least."""
KNOWN = {"worker_lost", "busy", "expired"}


@pytest.fixture(scope="module")
def narrow() -> Iterator[GatewayServer]:
    """A server with one slot, whose launches take a while."""
    server = GatewayServer(options={"latency_ms": 200}, num_slots=1)
    yield server
    server.close()


@contextlib.contextmanager
def greeted(server: GatewayServer) -> Iterator[ClientConnection]:
    with server.dial() as client:
        client.recv(TIMEOUT_S)
        yield client


def send(client: ClientConnection, *values: float) -> None:
    client.send(encode_observation(state(*values)))


def hear(client: ClientConnection) -> float | str:
    """The first value of the chunk that comes, or the code of the refusal."""
    try:
        actions = decode_reply(client.recv(TIMEOUT_S), LIMITS).values["actions"]
    except RefusedError as error:
        return error.code
    assert isinstance(actions, np.ndarray)
    return float(actions[0, 0])


def test_without_a_free_slot_the_newest_observation_of_a_session_waits(
    narrow: GatewayServer,
) -> None:
    with greeted(narrow) as first, greeted(narrow) as second:
        narrow.worker.popen.send_signal(signal.SIGSTOP)  # until all have been read
        for client, values in ((first, (1,)), (second, (2, 3, 4))):
            for value in values:
                send(client, value)
            assert client.ping().wait(TIMEOUT_S)
        narrow.worker.popen.send_signal(signal.SIGCONT)

        assert hear(first) == 1
        assert [hear(second) for _ in range(3)] == ["superseded", "superseded", 4]


def test_a_client_that_leaves_while_it_waits_or_runs_costs_nobody_a_place(
    narrow: GatewayServer,
) -> None:
    with greeted(narrow) as stays:
        with greeted(narrow) as running, greeted(narrow) as waiting:
            send(running, 1)
            assert running.ping().wait(TIMEOUT_S)
            send(waiting, 2)
            assert waiting.ping().wait(TIMEOUT_S)
        send(stays, 3)

        assert hear(stays) == 3


def test_a_row_that_is_not_finite_is_an_error_for_its_robot_alone() -> None:
    server = GatewayServer(options={"latency_ms": 50})
    with contextlib.closing(server), contextlib.ExitStack() as robots:
        clients = [robots.enter_context(greeted(server)) for _ in range(4)]
        for value, client in enumerate(clients):
            send(client, float(FAIL_STATE) if value == 2 else value)

        assert [hear(client) for client in clients] == [0, 1, "failed", 3]
        send(clients[2], 7)
        assert hear(clients[2]) == 7


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that gives up soon on a worker that hangs, and on what is late."""
    options = ("--latency-ms", "4", "--latency-per-row-ms", "0.2", "--slo-ms", "400")
    with serving("--model", "echo", *options) as running:
        yield running


def test_a_robot_that_connects_again_takes_over_at_once() -> None:
    with (
        serving("--model", "echo", *PATIENT) as server,
        server.robot(robot="arm-1") as lost,
    ):
        lost.infer(state(1))
        with server.robot(robot="arm-1") as again:
            again.infer(state(1))

            with pytest.raises(Exception, match="has connected again elsewhere"):
                lost.infer(state(1))


class Robot(threading.Thread):
    """Asks with states that nobody else sends, and checks every answer, until it may stop."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(daemon=True)  # a test that fails tells nobody to stop
        self.codes: Counter[str] = Counter()
        self.asked = self.served = 0
        self.wrong: list[str] = []
        self.may_stop = threading.Event()
        self._address = server.address
        self._number = number
        self._pause = threading.Event()

    @property
    def goes_on(self) -> bool:
        return self.asked < NUM_REQUESTS or not self.may_stop.is_set()

    def run(self) -> None:
        while self.goes_on:
            with contextlib.suppress(ConnectionLostError):
                self._stay_connected()
            self._pause.wait(0.05)

    def _stay_connected(self) -> None:
        with connect(self._address, robot=f"robot-{self._number}") as robot:
            while self.goes_on:
                self.asked += 1
                self._ask(robot, np.array([self._number, self.asked, -self._number], np.float32))

    def _ask(self, robot: Connection, sent: np.ndarray) -> None:
        try:
            actions = robot.infer({"observation/state": sent}).actions
        except RefusedError as error:
            self.codes[error.code] += 1
            self._pause.wait(0.02)  # as a robot would: not at once
            return
        self.served += 1
        if not np.array_equal(actions, sent + np.arange(50, dtype=np.float32)[:, None]):
            self.wrong.append(f"asked {sent}, got {actions[0]}")


def test_no_chunk_is_wrong_or_another_robots_while_workers_are_killed_and_stopped(
    server: Server,
) -> None:
    draw = random.Random(5)
    robots = [Robot(server, number) for number in range(1, NUM_ROBOTS + 1)]
    for robot in robots:
        robot.start()
    for number in (signal.SIGKILL, signal.SIGSTOP):
        every_robot_is_served(robots)
        threading.Event().wait(draw.uniform(0.05, 0.4))
        backs = server.count("worker_back", "gateway-0")
        server.send("worker-0", number)
        server.wait_for("worker_back", "gateway-0", backs + 1)
    every_robot_is_served(robots)
    for robot in robots:
        robot.may_stop.set()
    for robot in robots:
        robot.join()

    codes = sum((robot.codes for robot in robots), Counter())
    assert [wrong for robot in robots for wrong in robot.wrong] == []
    assert codes.total() > 0
    assert set(codes) <= KNOWN


def every_robot_is_served(robots: list[Robot]) -> None:
    """Wait until each has got one more answer."""
    before, pause = [robot.served for robot in robots], threading.Event()
    while not all(r.served > past for r, past in zip(robots, before, strict=True)):
        assert all(robot.is_alive() for robot in robots)
        pause.wait(0.001)


def leftovers(pids: list[int]) -> Mapping[str, object]:
    """What processes have left behind by name."""
    with open("/proc/net/unix", encoding="utf-8") as file:
        sockets = [line for line in file if any(f"@takt/{pid}-" in line for pid in pids)]
    return {
        "sockets": sockets,
        "files": [name for name in os.listdir("/dev/shm") if "takt" in name],
        "arenas": [pid for pid in pids if os.path.exists(f"/proc/{pid}/fd")],
    }


def test_a_server_that_is_killed_whole_leaves_no_memory_and_no_names() -> None:
    with serving() as running:
        pids = [running.process.pid, running.pid("gateway-0"), running.pid("worker-0")]
        ends = [os.pidfd_open(pid) for pid in pids]
        assert refusal(lambda: running.ask("list")) is None

        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        running.process.wait(TIMEOUT_S)
        for end in ends:
            assert select.select([end], [], [], TIMEOUT_S)[0]
            os.close(end)

        left = leftovers(pids[:1])
        assert left == {"sockets": [], "files": [], "arenas": []}
