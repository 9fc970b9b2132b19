"""``takt robot`` through a real server, in an environment that is stepped on the wall clock."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from takt.cli.driving.server_process import serving
from takt.cli.main import main
from takt.client.episode import read_episode, summary
from takt.units import SECOND

pytestmark = [pytest.mark.integration, pytest.mark.slow]

READY = 120 * SECOND
ECHO = ["--model", "echo", "--openpi", "0", "--slo-ms", "30000", "--hang-ms", "30000"]
"""A slow computer answers late, and that is no failure here."""


class Counter:
    """A number that is where it was last told to be; solved at 40.

    The echo policy answers a state with itself, counted up by one per step, so a robot that
    executes what it is told gets there.
    """

    action_space = SimpleNamespace(shape=(2,), dtype=np.dtype(np.float32))
    most_steps = 400

    def __init__(self) -> None:
        self.place = np.zeros(2, np.float32)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        self.place = np.zeros(2, np.float32)
        self.steps = 0
        return {"place": self.place}, {}

    def step(self, action: Any, /) -> Any:  # noqa: ANN401
        self.place = np.asarray(action, np.float32)
        self.steps += 1
        is_solved = bool(self.place[0] >= 40)
        ends = {"terminated": is_solved, "truncated": self.steps >= self.most_steps}
        return {"place": self.place}, 0.0, *ends.values(), {"is_success": is_solved}


def arguments(address: str, *more: str) -> list[str]:
    return [
        *("robot", "--env", "gymnasium:takt/Counter-v0", "--server", address),
        *("--model", "echo", "--control-hz", "50", "--key", "observation/state=place"),
        *("--max-steps", "400", *more),
    ]


@pytest.fixture
def a_stand_in_for_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(make=lambda name: Counter(), error=SimpleNamespace(Error=KeyError))
    monkeypatch.setitem(sys.modules, "gymnasium", module)  # type: ignore[arg-type]


@pytest.mark.usefixtures("a_stand_in_for_gymnasium")
def test_a_robot_is_driven_to_its_goal_episode_after_episode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.jsonl"
    with serving(ECHO) as server:
        address = server.wait_until_ready(READY)
        options = ["--episodes", "2", "--json", "--log", str(log)]
        status = main(arguments(address, *options))
        asynchronous = json.loads(capsys.readouterr().out)
        assert main(arguments(address, "--sync", "--execute", "10", "--json")) == 0
        synchronous = json.loads(capsys.readouterr().out)

    assert status == 0
    assert (asynchronous["solved"], asynchronous["endings"]) == (2, {"solved": 2})
    assert asynchronous["observation_bytes"] > 0
    assert synchronous["solved"] == 1
    # It stands still at the end of every chunk, for its answer.
    assert synchronous["starved_ticks"] > synchronous["chunks"] // 2
    for index in range(2):
        told = summary(read_episode(tmp_path / f"run-{index}.jsonl"))
        assert told["is_complete"]
        assert told["executed"] > 0


def test_a_real_gymnasium_environment_is_driven(capsys: pytest.CaptureFixture[str]) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    box = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float32)

    class Registered(Counter, gymnasium.Env):  # type: ignore[misc,name-defined]
        action_space = box
        observation_space = gymnasium.spaces.Dict({"place": box})

    gymnasium.register("takt/Counter-v0", entry_point=Registered)
    try:
        with serving(ECHO) as server:
            status = main(arguments(server.wait_until_ready(READY), "--json"))
    finally:
        del gymnasium.registry["takt/Counter-v0"]

    assert status == 0
    assert json.loads(capsys.readouterr().out)["solved"] == 1


@pytest.mark.usefixtures("a_stand_in_for_gymnasium")
def test_a_server_that_is_not_there_is_said_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments("127.0.0.1:1")) == 1

    assert capsys.readouterr().err.startswith("takt: cannot connect to 127.0.0.1:1")


ROVER = """
import sys
from types import SimpleNamespace
import numpy as np
from takt.cli.main import main

class Rover:
    action_space = SimpleNamespace(shape=(2,), dtype=np.dtype(np.float32))

    def reset(self, **_):
        return {"place": np.ones(2, np.float32)}, {}

    def step(self, action):
        with open(sys.argv[1], "a") as file:
            file.write(f"{float(action[0])}\\n")
        return {"place": np.ones(2, np.float32)}, 0.0, False, False, {}

error = SimpleNamespace(Error=KeyError)
sys.modules["gymnasium"] = SimpleNamespace(make=lambda name: Rover(), error=error)
sys.exit(main(sys.argv[2:]))
"""
"""Drives by velocities, and notes each one it is told in a file."""


@contextmanager
def driven(folder: Path, address: str, **streams: Any) -> Generator[Any, None, None]:  # noqa: ANN401
    """``takt robot`` in a process of its own, once it has moved."""
    noted = folder / "velocities"
    options = [
        *("--env", "gymnasium:Rover", "--server", address, "--model", "echo", "--hold", "velocity"),
        *("--control-hz", "50", "--key", "observation/state=place", "--max-steps", "100000"),
        *("--log", str(folder / "run.jsonl")),
    ]
    command = [sys.executable, "-c", ROVER, str(noted), "robot", *options]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, **streams) as process:
        try:
            pause = threading.Event()
            while process.poll() is None and len([v for v in velocities(folder) if v]) < 5:
                pause.wait(0.05)
            yield process
        finally:
            process.kill()


def velocities(folder: Path) -> Sequence[float]:
    noted = folder / "velocities"
    return [float(line) for line in noted.read_text().split()] if noted.exists() else []


def check_stopped(folder: Path) -> None:
    told = velocities(folder)
    assert any(told)
    assert told[-1] == 0.0  # nothing stays in force
    episode = summary(read_episode(folder / "run.jsonl"))
    assert episode["is_complete"]
    assert episode["changes"][-1]["cause"] == "stop"


@pytest.mark.usefixtures("signals_are_heeded")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_robot_before_the_process_ends(
    number: signal.Signals, tmp_path: Path
) -> None:
    with serving(ECHO) as server:
        address = server.wait_until_ready(READY)
        with driven(tmp_path, address, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.send_signal(number)
            said, complaint = process.communicate(timeout=60)

    assert (process.returncode, complaint) == (128 + number, b"")
    check_stopped(tmp_path)
    assert b"the run was broken off" in said


@pytest.mark.usefixtures("signals_are_heeded")
def test_a_terminal_that_is_closed_stops_the_robot_too(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    with serving(ECHO) as server:
        address = server.wait_until_ready(READY)
        terminal = {"stdout": theirs, "stderr": theirs, "preexec_fn": own_terminal}
        with driven(tmp_path, address, **terminal) as process:
            os.close(theirs)
            assert os.read(ours, 100)  # a panel that lives
            os.close(ours)
            status = process.wait(timeout=60)

    assert status == 128 + signal.SIGHUP
    check_stopped(tmp_path)
