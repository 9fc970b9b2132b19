"""Our client over LeRobot's gRPC, against our own LeRobot door."""

import math
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tests.integration.lerobot_server import LerobotServer

from takt.client import ConnectionLostError, ControlLoop, EpisodeLog, LoopSettings
from takt.client.episode import read_episode
from takt.client.lerobot import LerobotConnection, connect_lerobot
from takt.errors import RefusedError
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import State
from takt.units import ms, seconds

pytestmark = pytest.mark.integration

FEATURES = {"a.pos": float, "b.pos": float, "front": (1080, 1920, 3)}
IMAGE = np.zeros((1080, 1920, 3), np.uint8)
FAIL = -31337.0
PATIENCE = seconds(60)


@pytest.fixture(scope="module")
def server() -> Iterator[LerobotServer]:
    server = LerobotServer(latencies_ms={"echo": 0.0, "slow": 1500.0})
    yield server
    server.close()


def connect(server: LerobotServer, model: str = "echo", **more: Any) -> LerobotConnection:  # noqa: ANN401
    return connect_to(server.port, model, **more)


def connect_to(port: int, model: str = "echo", **more: Any) -> LerobotConnection:  # noqa: ANN401
    return connect_lerobot(
        f"127.0.0.1:{port}",
        policy_type="act",
        pretrained_name_or_path=model,
        **{"features": FEATURES, "actions_per_chunk": 20, **more},
    )


def seen(first: float) -> Mapping[str, object]:
    return {"a.pos": first, "b.pos": 2.0, "front": IMAGE, "task": "fold"}


def test_an_observation_of_several_pieces_is_answered(server: LerobotServer) -> None:
    with connect(server) as connection:
        answers = [connection.infer(seen(float(step))) for step in range(3)]

    assert IMAGE.nbytes > 2 * 2**20
    for step, answer in enumerate(answers):
        np.testing.assert_array_equal(answer.actions[:, 0], step + np.arange(20.0))
    assert connection.model == "echo"


def test_two_connections_of_one_process_are_two_robots(server: LerobotServer) -> None:
    with connect(server) as left, connect(server) as right:
        firsts = [
            connection.infer(seen(n)).actions[0, 0] for n, connection in ((1, left), (2, right))
        ]

    assert firsts == [1.0, 2.0]


def test_a_refusal_has_its_code_and_leaves_the_connection_usable(server: LerobotServer) -> None:
    with connect(server) as connection:
        with pytest.raises(RefusedError, match="inference failed on demand") as caught:
            connection.infer(seen(FAIL))
        assert caught.value.code == "failed"
        assert connection.infer(seen(1.0)).actions[0, 0] == 1.0


def test_a_model_that_the_server_has_not_is_refused(server: LerobotServer) -> None:
    with pytest.raises(RefusedError, match="this server has: echo") as caught:
        connect(server, "pi9")

    assert caught.value.code == "unknown_model"


def test_a_silent_server_is_left_in_time(server: LerobotServer) -> None:
    with connect(server, "slow", answer_timeout=ms(300)) as connection:
        with pytest.raises(ConnectionLostError, match="did not answer") as caught:
            connection.infer(seen(1.0))
        with pytest.raises(ConnectionLostError, match="connect again"):
            connection.infer(seen(1.0))

    assert caught.value.code == "timeout"


def test_closing_ends_a_call_that_waits(server: LerobotServer) -> None:
    connection = connect(server, "slow", answer_timeout=seconds(60))
    outcome: list[BaseException] = []
    has_begun = threading.Event()

    def ask() -> None:
        has_begun.set()
        try:
            connection.infer(seen(1.0))
        except ConnectionLostError as error:
            outcome.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    has_begun.wait()
    connection.close()
    asking.join(60)

    assert [type(error) for error in outcome] == [ConnectionLostError]


def test_nobody_there_is_said_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(
            ConnectionLostError, match=f"cannot connect to 127.0.0.1:{port}"
        ) as caught:
            connect_to(port)

    assert caught.value.code == "unreachable"


def test_a_port_that_accepts_and_says_nothing_is_unreachable() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(ConnectionLostError) as caught,
    ):
        connect_to(silent.getsockname()[1], connect_timeout=ms(300))

    assert caught.value.code == "unreachable"


def test_a_grpc_server_of_another_kind_is_told_apart() -> None:
    with ThreadPoolExecutor(1) as pool:
        other = grpc.server(pool)
        port = other.add_insecure_port("127.0.0.1:0")
        other.start()
        try:
            with pytest.raises(ConnectionLostError, match="but not LeRobot's") as caught:
                connect_to(port)
        finally:
            other.stop(None).wait()

    assert caught.value.code == "unreachable"


def test_importing_the_client_loads_no_grpc() -> None:
    code = "import sys, takt.client, takt.client.lerobot; sys.exit('grpc' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_a_server_that_came_back_gets_a_new_handshake() -> None:
    server = LerobotServer()
    try:
        with connect(server) as connection:
            connection.infer(seen(1.0))
            server.stop()
            server.start()
            # gRPC would connect again by itself, to a server that was told nothing.
            with pytest.raises(ConnectionLostError) as caught:
                connection.infer(seen(2.0))
        with connect(server) as connection:
            assert connection.infer(seen(3.0)).actions[0, 0] == 3.0
        counters = server.stop()
    finally:
        server.close()

    assert caught.value.code == "closed"
    assert "lerobot.resumed" not in counters


@pytest.mark.slow
def test_a_control_loop_executes_every_action_once(server: LerobotServer, tmp_path: Path) -> None:
    class Arm:
        next = 0.0

        def observe(self) -> Mapping[str, object]:
            return {"a.pos": self.next, "b.pos": 0.0, "front": IMAGE, "task": "fold"}

        def act(self, action: np.ndarray, /) -> None:
            # Out of a hold an action takes several commands; the next one is then under way.
            self.next = math.ceil(float(action[0]) - 1e-3) + 1.0

    # On a slow computer answers are late; a hold would be right, and is not the subject.
    patient = ContractRules(max_action_age=seconds(60), t_hold=seconds(60), t_stop=None)
    settings = LoopSettings(control_hz=50.0, contract=patient)
    with (
        EpisodeLog(tmp_path / "run.jsonl") as log,
        ControlLoop(Arm(), partial(connect, server), settings, log=log) as loop,
    ):
        loop.start()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE), loop.status()
        pause = threading.Event()
        while loop.status().answered <= 3:
            pause.wait(0.01)
        status = loop.status()

    events = read_episode(tmp_path / "run.jsonl").of("action")
    executed = [event for event in events if event["whole"]]
    timesteps = [event["timestep"] for event in executed]
    assert timesteps == list(range(len(timesteps)))
    assert [event["command"][0] for event in executed] == pytest.approx(timesteps)
    assert len(timesteps) > 20
    assert not status.failures
