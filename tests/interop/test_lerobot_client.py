"""LeRobot's unmodified RobotClient against ``takt serve``. Run by ``make interop``.

The client runs in an environment of its own, which ``TAKT_INTEROP_PYTHON`` names, each robot in a
process of its own. LeRobot's tests of its server come with neither its wheel nor its source
distribution, and start that server themselves, so they cannot be pointed here.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.interop.ports import free_port

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

HERE = Path(__file__).parent
FPS = 30
STARTING_S = 60.0
"""Importing LeRobot and torch takes this long on a busy computer."""


@dataclass
class Robot:
    """A robot in a process of its own."""

    process: "subprocess.Popen[str]"
    log: Path

    def result(self, seconds: float) -> dict[str, Any]:
        out, _ = self.process.communicate(timeout=STARTING_S + seconds)
        assert self.process.returncode == 0, self.said()
        return json.loads(out.splitlines()[-1])

    def wait_until_moving(self) -> None:
        """Wait for its first action."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "moving\n", self.said()

    def said(self) -> str:
        return self.log.read_text()


class Server:
    """``takt serve`` with the echo policy."""

    def __init__(self, port: int, *options: str) -> None:
        self.port = port
        self.address = f"127.0.0.1:{port}"
        command = [sys.executable, "-m", "takt.cli.main", "serve", "--json", "--model", "echo"]
        command += ["--openpi", "0", "--lerobot", str(port), *options]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        waited = {"listening", "ready"}
        while waited:
            event = self._next()
            is_door = event.get("door", "lerobot") == "lerobot"
            if event["process"].startswith("gateway") and is_door:
                waited.discard(event["event"])

    def _next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the server has ended"
        return json.loads(line)

    def stop(self) -> dict[str, int]:
        """Stop it; its counters."""
        self._process.terminate()
        out, _ = self._process.communicate(timeout=30)
        events = [json.loads(line) for line in out.splitlines()]
        return next(event["counters"] for event in events if event["event"] == "stopped")


@contextmanager
def serving(*options: str, port: int | None = None) -> Iterator[Server]:
    server = Server(free_port() if port is None else port, *options)
    try:
        yield server
    finally:
        if server._process.poll() is None:
            server.stop()


def start_robot(
    python: str, server: str, folder: Path, seconds: float, arm: dict[str, Any]
) -> Robot:
    said = json.dumps({"server": server, "seconds": seconds, "arm": arm})
    command = [python, str(HERE / "run_robot.py"), said]
    log = folder / f"robot-{arm['identity']:g}.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder
        )
    return Robot(process, log)


def identities(result: dict[str, Any]) -> set[int]:
    """Which robots the executed actions were computed for."""
    return {int(action[0] // 1000) for action in result["executed"]}


def test_an_episode_runs_with_two_cameras(lerobot_python: str, tmp_path: Path) -> None:
    arm = {"identity": 1000.0, "side": 640}
    with serving("--latency-ms", "100") as server:
        robot = start_robot(lerobot_python, server.address, tmp_path, 6.0, arm=arm)
        result = robot.result(6.0)
        counters = server.stop()

    executed = len(result["executed"])
    assert executed > 4 * FPS
    assert identities(result) == {1}
    assert min(result["queue"][1:]) >= 1, "the queue ran dry"
    refills = executed / 10  # half of a chunk of 20
    assert refills * 0.8 <= counters["lerobot.chunks"] <= refills * 1.3 + 2


def test_two_robots_never_get_each_others_actions(lerobot_python: str, tmp_path: Path) -> None:
    with serving("--latency-ms", "50") as server:
        robots = [
            start_robot(
                lerobot_python,
                server.address,
                tmp_path,
                6.0,
                arm={"identity": 1000.0 * number},
            )
            for number in (1, 2)
        ]
        results = [robot.result(6.0) for robot in robots]

    assert [identities(result) for result in results] == [{1}, {2}]
    assert min(len(result["executed"]) for result in results) > 2 * FPS


def test_a_robot_in_radians_is_refilled_at_its_threshold(
    lerobot_python: str, tmp_path: Path
) -> None:
    arm = {"identity": 0.01, "scale": 0.001}
    with serving("--latency-ms", "100") as server:
        robot = start_robot(lerobot_python, server.address, tmp_path, 6.0, arm=arm)
        result = robot.result(6.0)

    assert len(result["executed"]) > 4 * FPS
    # A refill begins at 10 of 20 and takes 100 ms, in which three are executed.
    assert min(result["queue"][1:]) >= 4


def test_after_an_error_the_next_observation_is_served(lerobot_python: str, tmp_path: Path) -> None:
    arm = {"identity": 1000.0, "fail_until": 1}
    with serving("--latency-ms", "50") as server:
        robot = start_robot(lerobot_python, server.address, tmp_path, 4.0, arm=arm)
        result = robot.result(4.0)

    assert len(result["executed"]) > 2 * FPS
    assert "inference failed on demand" in robot.said()


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_robot_goes_on_after_a_restart_of_the_server(
    lerobot_python: str, tmp_path: Path, is_kept: bool
) -> None:
    arm = {"identity": 1000.0}
    options = ["--latency-ms", "50"]
    options += ["--state-dir", str(tmp_path / "state")] if is_kept else []
    with serving(*options) as server:
        robot = start_robot(lerobot_python, server.address, tmp_path, 12.0, arm=arm)
        robot.wait_until_moving()
        server.stop()
    with serving(*options, port=server.port) as server:
        result = robot.result(12.0)
        counters = server.stop()

    assert counters["lerobot.resumed"] == 1
    assert counters["lerobot.chunks"] > 3
    assert identities(result) == {1}
    lengths = {round(action[0] - 1000.0) for action in result["executed"]}
    assert max(lengths) < (20 if is_kept else 50)


def test_eight_idle_clients_slow_nobody(lerobot_python: str, tmp_path: Path) -> None:
    with serving("--latency-ms", "50") as server:
        command = [lerobot_python, str(HERE / "poll_idly.py"), server.address, "8"]
        idle = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
        try:
            assert idle.stdout is not None
            assert idle.stdout.readline() == "polling\n"
            robot = start_robot(
                lerobot_python, server.address, tmp_path, 6.0, arm={"identity": 1000.0}
            )
            result = robot.result(6.0)
        finally:
            idle.communicate("", timeout=30)

    assert len(result["executed"]) > 4 * FPS
    assert min(result["queue"][1:]) >= 6
