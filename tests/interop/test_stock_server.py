"""Takt's control loop on LeRobot's unmodified PolicyServer. Run by ``make interop``.

The server runs in LeRobot's own environment around a policy that echoes (``stock_server.py``). The
robot's state is the number of its next action, so each action says which timestep it is for.
"""

import json
import math
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.interop.ports import free_port

from takt.client import ConnectionLostError, ControlLoop, EpisodeLog, LoopSettings, LoopStatus
from takt.client.episode import read_episode
from takt.client.lerobot import LerobotConnection, connect_lerobot
from takt.errors import InvariantError, RefusedError
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import State
from takt.units import seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

HERE = Path(__file__).parent
SIZE = (480, 640, 3)
FEATURES = {"identity.pos": float, "count.pos": float, "front": SIZE, "wrist": SIZE}
FAIL = -31337.0
PATIENCE = seconds(60)
"""Importing LeRobot and torch takes this long on a busy computer."""


class StockServer:
    """LeRobot's server in a process of its own; it can be ended and started again."""

    def __init__(self, python: str, folder: Path, latency_ms: float) -> None:
        self.port = free_port()
        said = json.dumps({"port": self.port, "latency_ms": latency_ms})
        self._command = [python, str(HERE / "stock_server.py"), said]
        self._folder = folder
        self.start()

    def start(self) -> None:
        with (self._folder / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self._folder
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "listening\n", self.said()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def said(self) -> str:
        return (self._folder / "server.log").read_text()

    def connect(self, **more: Any) -> LerobotConnection:  # noqa: ANN401
        asked = {"policy_type": "act", "pretrained_name_or_path": "echo", "actions_per_chunk": 20}
        return connect_lerobot(f"127.0.0.1:{self.port}", features=FEATURES, **{**asked, **more})


@pytest.fixture(scope="module")
def server(lerobot_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockServer]:
    server = StockServer(lerobot_python, tmp_path_factory.mktemp("server"), latency_ms=50.0)
    yield server
    server.end()


class Arm:
    """Observes the number of its next action."""

    def __init__(self) -> None:
        self.next = 0.0
        self.fails = 0
        self.image = np.full(SIZE, 7, np.uint8)
        self.has_acted = threading.Event()

    def observe(self) -> Mapping[str, object]:
        identity = 1000.0
        if self.fails:
            self.fails -= 1
            identity = FAIL
        images = {"front": self.image.copy(), "wrist": self.image.copy()}
        return {"identity.pos": identity, "count.pos": self.next, **images, "task": "fold"}

    def act(self, action: np.ndarray, /) -> None:
        # Out of a hold an action is reached in several commands; the next one is then under way.
        self.next = math.ceil(float(action[1]) - 1e-3) + 1.0
        self.has_acted.set()


def drive(
    arm: Arm, server: StockServer, log: Path, script: Callable[[ControlLoop], None]
) -> LoopStatus:
    """Drive the arm while the script runs."""
    settings = LoopSettings(control_hz=30.0, contract=ContractRules(t_stop=None))
    with (
        EpisodeLog(log) as episode,
        ControlLoop(arm, server.connect, settings, log=episode) as loop,
    ):
        loop.start()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE), loop.status()
        script(loop)
        return loop.status()


def actions(log: Path) -> list[Mapping[str, Any]]:
    """The commands that were whole actions."""
    return [event for event in read_episode(log).of("action") if event["whole"]]


def assert_each_is_executed_once(executed: list[Mapping[str, Any]]) -> None:
    timesteps = [event["timestep"] for event in executed]
    assert timesteps == list(range(len(timesteps)))
    assert [event["command"][1] for event in executed] == pytest.approx(timesteps)


def wait_for(seconds_: float) -> Callable[[ControlLoop], None]:
    return lambda _: (threading.Event().wait(seconds_), None)[1]


def test_an_episode_executes_every_action_once(server: StockServer, tmp_path: Path) -> None:
    status = drive(Arm(), server, tmp_path / "run.jsonl", wait_for(5.0))

    executed = actions(tmp_path / "run.jsonl")
    assert len(executed) > 4 * 30
    assert_each_is_executed_once(executed)
    assert {event["command"][0] - event["index"] for event in executed} == {1000.0}
    assert not status.failures


def test_a_state_that_hardly_moves_is_answered_at_once(server: StockServer) -> None:
    # A stock client's observations would be dropped as similar: this robot is in radians.
    seen = {
        "identity.pos": 0.5,
        "front": np.zeros(SIZE, np.uint8),
        "wrist": np.zeros(SIZE, np.uint8),
    }
    with server.connect() as connection:
        firsts = [
            connection.infer({**seen, "count.pos": step * 0.01}).actions[0, 1] for step in range(5)
        ]

    assert firsts == pytest.approx([0.0, 0.01, 0.02, 0.03, 0.04])


def test_after_an_error_the_next_observation_is_served(server: StockServer, tmp_path: Path) -> None:
    arm = Arm()
    arm.fails = 2
    status = drive(arm, server, tmp_path / "run.jsonl", wait_for(2.0))

    assert status.failures == {"failed": 2}
    assert "has no actions for it" in (status.last_failure or "")
    assert_each_is_executed_once(actions(tmp_path / "run.jsonl"))


def test_a_robot_goes_on_after_a_restart_of_the_server(server: StockServer, tmp_path: Path) -> None:
    arm = Arm()
    log = tmp_path / "run.jsonl"

    def restart(loop: ControlLoop) -> None:
        server.end()
        assert loop.wait_for(State.HOLD, timeout=PATIENCE), loop.status()
        server.start()
        loop.resume()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE), loop.status()
        wait_for(2.0)(loop)

    status = drive(arm, server, log, restart)

    assert_each_is_executed_once(actions(log))
    assert status.failures.keys() <= {"closed", "unreachable"}
    assert "connected and ready" in server.said()


def test_two_robots_on_one_stock_server_never_get_each_others_actions(server: StockServer) -> None:
    image = np.zeros(SIZE, np.uint8)

    def ask_often(connect: Callable[[], LerobotConnection], identity: float) -> list[float]:
        """First numbers of the chunks that came."""
        answers: list[float] = []
        for _ in range(8):
            seen = {"identity.pos": identity, "count.pos": 0.0, "front": image, "wrist": image}
            try:
                with connect() as connection:
                    answers += (float(connection.infer(seen).actions[0, 0]) for _ in range(4))
            except (ConnectionLostError, InvariantError, RefusedError):
                continue
        return answers

    connect = partial(server.connect, answer_timeout=seconds(4))
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask_often, connect, identity) for identity in (1000.0, 2000.0)]
        answers = [one.result() for one in asked]

    assert set(answers[0]) <= {1000.0}
    assert set(answers[1]) <= {2000.0}
    assert sum(map(len, answers)) > 0


def test_a_checkpoint_that_the_server_has_not_is_refused_with_its_words(
    server: StockServer,
) -> None:
    with pytest.raises(RefusedError, match="no checkpoint nowhere"):
        server.connect(pretrained_name_or_path="nowhere")
    with pytest.raises(RefusedError, match="Policy type pi9 not supported"):
        server.connect(policy_type="pi9")
