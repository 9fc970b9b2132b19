"""A real server is killed, or comes back, while ``takt drive`` and ``takt bench`` measure it."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration import life
from tests.integration.openpi_server import CutError, openpi_server
from tests.integration.ports import reserved_port
from websockets.sync.server import ServerConnection

from takt.cli.driving.crew import Crew
from takt.cli.main import main
from takt.units import Nanos

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SLO = ("--slo-ms", "30000")
"""How slow this computer is, is not the subject."""


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAKT_TOKEN", raising=False)


@pytest.fixture
def server() -> Iterator[life.Server]:
    with life.serving("--model", "echo", *life.PATIENT) as running:
        yield running


def kill(running: life.Server) -> None:
    """All of its processes at once."""
    pids = [running.process.pid, running.pid("gateway-0"), running.pid("worker-0")]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    running.process.wait(life.TIMEOUT_S)


def drive(
    capsys: pytest.CaptureFixture[str], address: str, *options: str
) -> tuple[int, dict[str, Any], str]:
    """Exit status, figures and what was said beside them."""
    status = main(["drive", address, "--json", "--rate-hz", "20", *options])
    out, err = capsys.readouterr()
    return status, json.loads(out), err


def test_a_server_that_is_killed_costs_every_request_from_then_on_and_fails_the_run(
    server: life.Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, is_killed = Crew.run, threading.Event()

    def run_and_kill(crew: Crew, look: Callable[[], None], every: Nanos) -> None:
        def kill_once_all_are_served() -> None:
            look()
            if all(robot.stages for robot in crew.robots) and not is_killed.is_set():
                is_killed.set()
                kill(server)

        run(crew, kill_once_all_are_served, every)

    monkeypatch.setattr(Crew, "run", run_and_kill)

    status, figures, err = drive(capsys, server.address, "--robots", "4", "--seconds", "5")

    assert status == 1
    assert is_killed.is_set()
    assert figures["issued"] == 400
    served = figures["outcomes"]["served"]
    assert 4 <= served < 400
    assert figures["attainment"] == served / 400
    assert sum(figures["errors"].values()) == 400 - served
    away = figures["server_away"]
    assert (away["robots"], away["not_served_again"], away["for_good"]) == (4, 4, True)
    said = "for 4 of 4 robots and did not come back by the end\n"
    assert err.endswith(said + "takt: the server was gone when the run ended\n")


def test_a_benchmark_stops_after_the_epoch_in_which_its_server_is_killed(
    server: life.Server, tmp_path: Path
) -> None:
    table = tmp_path / "requests.csv"
    options = ["--server", server.address, "--robots", "2", "--processes", "2", "--rate-hz", "10"]
    epochs = ["--epochs", "200", "--seconds", "1", "--warm-up-seconds", "0.2"]
    command = [sys.executable, "-m", "takt.cli.main", "bench", *options, *epochs, "--json"]
    with subprocess.Popen(
        [*command, "--csv", str(table)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        next(line for line in iter(process.stderr.readline, "") if line.startswith("epoch 1 of"))

        kill(server)

        out, err = process.communicate(timeout=life.TIMEOUT_S)
    assert process.returncode == 1
    figures = json.loads(out)
    *before, last = (epoch["server_away"] for epoch in figures["epochs"])
    assert before
    assert last["for_good"]
    assert not any(away and away["for_good"] for away in before)
    assert figures["server_away"] == {"epoch": len(before) + 1, **last}
    assert figures["issued"] == 20 * (len(before) + 1)
    assert not figures["stopped_early"]
    assert err.endswith("\ntakt: the server was gone when the run ended\n")
    with table.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == figures["issued"]


def test_a_server_that_comes_back_is_no_failure_and_is_said_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = threading.Event()

    def cut(values: dict[str, Any], connection: ServerConnection) -> bytes:
        gone.set()
        raise CutError

    with reserved_port() as port, contextlib.ExitStack() as later:
        before = contextlib.ExitStack()
        address = before.enter_context(openpi_server(cut, port=port))

        def restart() -> None:
            gone.wait(life.TIMEOUT_S)
            before.close()
            later.enter_context(openpi_server(port=port))

        restarter = threading.Thread(target=restart)
        restarter.start()
        options = ("--robots", "3", "--seconds", "5")
        status, figures, err = drive(capsys, address, *options, *SLO)
        restarter.join()

    assert status == 0
    away = figures["server_away"]
    assert (away["robots"], away["not_served_again"], away["for_good"]) == (3, 0, False)
    assert away["back_after_s"] > 0
    assert "for 3 of 3 robots and came back: all of them were served again, after" in err
