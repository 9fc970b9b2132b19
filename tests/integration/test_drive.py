"""``takt drive`` and ``takt demo`` over real sockets: servers of the test, then Takt's own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.integration.openpi_server import CutError, echo, openpi_server
from websockets.sync.server import ServerConnection

from takt.cli.driving.server_process import serving
from takt.cli.main import main
from takt.client import connect
from takt.errors import RefusedError
from takt.policies.echo import EchoOptions, echo_spec
from takt.schema.plain import to_plain
from takt.units import SECOND

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TIMEOUT_S = 60.0
READY = 120 * SECOND
CARD = {
    "version": "0",
    "model": "echo",
    "slo_ms": 500.0,
    "spec": to_plain(echo_spec("echo", EchoOptions())),
}


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAKT_TOKEN", raising=False)


def drive(
    capsys: pytest.CaptureFixture[str], address: str, *options: str
) -> tuple[int, dict[str, Any], str]:
    """Exit status, figures and what was said beside them."""
    status = main(["drive", address, "--json", "--rate-hz", "20", *options])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out else {}, err


def test_every_chunk_of_echo_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    with openpi_server(metadata={"takt": CARD}) as address:
        status, figures, _ = drive(capsys, address, "--seconds", "0.5", "--robots", "4")

    assert status == 0
    assert figures["issued"] == 40
    assert figures["checked_chunks"] == figures["outcomes"]["served"] > 0
    assert figures["foreign_chunks"] == 0


def test_a_stock_server_is_driven_without_being_checked(capsys: pytest.CaptureFixture[str]) -> None:
    with openpi_server() as address:
        status, figures, _ = drive(
            capsys, address, "--seconds", "0.5", "--robots", "2", "--threshold", "0.5"
        )

    assert status == 0
    assert figures["checked_chunks"] == 0
    assert figures["models"]["default"]["slo_ms"] == 200.0


def test_a_server_that_mixes_up_robots_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    before = [np.zeros(6, np.float32)]

    def mix_up(values: dict[str, Any], connection: ServerConnection) -> bytes:
        state, before[0] = before[0], values["observation/state"]
        return echo({**values, "observation/state": state}, connection)

    with openpi_server(mix_up, metadata={"takt": CARD}) as address:
        status, figures, err = drive(capsys, address, "--seconds", "0.5")

    assert status == 1
    assert figures["foreign_chunks"] > 0
    assert "belonged to another observation" in err


def test_a_wrong_token_and_an_unknown_model_are_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with openpi_server(token="sesame") as address:
        refused = drive(capsys, address)
    with openpi_server() as address:
        unknown = drive(capsys, address, "--model", "nothing")

    assert refused == (1, {}, "takt: wrong token\n")
    assert unknown == (1, {}, "takt: no model 'nothing'; models: echo\n")


def test_a_server_that_vanishes_is_counted_until_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = threading.Event()
    server = contextlib.ExitStack()

    def respond(values: dict[str, Any], connection: ServerConnection) -> bytes:
        if values["takt"]["sequence"] < 3:
            return echo(values, connection)
        gone.set()
        raise CutError

    address = server.enter_context(openpi_server(respond, metadata={"takt": CARD}))

    def close() -> None:
        gone.wait(TIMEOUT_S)
        server.close()

    closer = threading.Thread(target=close)
    closer.start()
    status, figures, err = drive(capsys, address, "--seconds", "2", "--robots", "3")
    closer.join()

    assert status == 1
    assert figures["issued"] == 120
    assert figures["attainment"] <= 9 / 120
    assert figures["errors"]["unreachable"] > 0
    assert sum(figures["errors"].values()) == 120 - figures["outcomes"]["served"]
    assert figures["server_away"]["robots"] == 3
    assert "did not come back by the end" in err


@pytest.fixture(scope="module")
def takt() -> Iterator[tuple[str, int]]:
    """A real server with echo: its address, and the process of its worker."""
    with serving(["--model", "echo", "--openpi", "0", "--hang-ms", "30000"]) as server:
        address = server.wait_until_ready(READY)
        (worker,) = {e["pid"] for e in server.events if e["process"] == "worker-0"}
        yield address, worker


def test_robots_of_a_real_server_get_their_own_chunks(
    takt: tuple[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    status, figures, _ = drive(capsys, takt[0], "--seconds", "2", "--robots", "16")

    assert status == 0
    assert figures["issued"] == 640
    assert figures["outcomes"]["served"] > 0
    assert figures["checked_chunks"] == figures["outcomes"]["served"]
    assert {"network", "queue", "prefix", "denoise"} <= set(figures["stages_ms"])


def test_a_worker_that_is_killed_costs_answers_and_no_robot_another_ones(
    takt: tuple[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    address, worker = takt
    killer = threading.Timer(1.0, os.kill, (worker, signal.SIGKILL))
    killer.start()
    status, figures, _ = drive(capsys, address, "--seconds", "3", "--robots", "8")
    killer.join()
    wait_until_served(address)
    afterwards, again, _ = drive(capsys, address, "--seconds", "1", "--robots", "8")

    assert (status, afterwards) == (0, 0)
    assert (figures["issued"], again["issued"]) == (480, 160)
    assert (figures["foreign_chunks"], again["foreign_chunks"]) == (0, 0)
    assert sum(figures["errors"].values()) > 0
    assert again["outcomes"]["served"] > 0


def wait_until_served(address: str) -> None:
    """Ask until an answer comes, as a robot would: not at once."""
    pause = threading.Event()
    with connect(address) as robot:
        while True:
            with contextlib.suppress(RefusedError):
                robot.infer({"observation/state": np.zeros(6, np.float32)})
                return
            pause.wait(0.02)


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "takt.cli.main", "demo", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_the_demo_serves_a_network_and_says_how_it_went() -> None:
    pytest.importorskip("openvino")

    done = demo("--seconds", "3")

    assert done.returncode == 0, done.stderr
    assert "ready after" in done.stdout
    assert "served" in done.stdout
    assert "of 48 requests within" in done.stdout
    assert done.stderr == ""


@pytest.mark.usefixtures("signals_are_heeded")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_demo_with_its_figures_and_no_server_is_left(
    number: signal.Signals,
) -> None:
    command = [sys.executable, "-m", "takt.cli.main", "demo", "--model", "echo", "--seconds", "90"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        next(line for line in lines if "requests answered" in line)

        process.send_signal(number)

        rest = "".join(lines)  # ends when the server has ended, too
    assert "the run was broken off" in rest
    assert process.returncode == 128 + number


def test_a_demo_whose_server_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKT_TOKEN", "two\tparts")

    done = demo("--model", "echo", "--seconds", "1")

    assert done.returncode == 1
    assert done.stderr.startswith("takt: ")
