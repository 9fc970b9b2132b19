"""``takt bench`` and ``takt trace`` with real processes, sockets and a server of their own."""

import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.openpi_server import openpi_server

from takt.cli.driving.server_process import serving
from takt.cli.main import main
from takt.units import SECOND

pytestmark = [pytest.mark.integration, pytest.mark.slow]

READY = 120 * SECOND
QUICK = ("--seconds", "1", "--warm-up-seconds", "0.2", "--epochs", "2", "--rate-hz", "10")
PATIENT = ("--slo-ms", "20000")  # a busy computer answers late, and that is no failure here


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAKT_TOKEN", raising=False)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A real server with echo, whose launches take time: its address and its trace."""
    trace = tmp_path_factory.mktemp("server") / "run.jsonl"
    options = ["--model", "echo", "--latency-ms", "10", "--slo-ms", "20000", "--hang-ms", "30000"]
    with serving([*options, "--openpi", "0", "--trace", str(trace)]) as server:
        yield server.wait_until_ready(READY), trace


@pytest.fixture(scope="module")
def measured(
    traced: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Path]:
    """Two processes of robots measured it: the figures, and the requests."""
    table = tmp_path_factory.mktemp("bench") / "requests.csv"
    options = ("--server", traced[0], "--robots", "6", "--processes", "2", "--csv", str(table))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["bench", "--json", *options, *QUICK]) == 0
    return json.loads(printed.getvalue()), table


def test_robots_of_several_processes_measure_one_server(
    measured: tuple[dict[str, Any], Path],
) -> None:
    figures, _ = measured

    assert figures["issued"] == 2 * 6 * 10
    assert figures["robots"] == 6
    assert [epoch["issued"] for epoch in figures["epochs"]] == [60, 60]
    assert figures["checked_chunks"] >= figures["outcomes"]["served"] > 0
    assert figures["foreign_chunks"] == 0
    assert figures["senders"]["processes"] == 2
    assert figures["senders"]["cpu_share"] > 0
    assert figures["split_ms"]["prefix"]["p50"] >= 5
    assert figures["split_ms"]["denoise"]["p50"] >= 5


def test_the_parts_of_each_latency_add_up(measured: tuple[dict[str, Any], Path]) -> None:
    with measured[1].open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert len(rows) == 120
    for row in rows:
        if row["outcome"] == "served":
            parts = [float(row[name]) for name in list(row)[10:] if row[name]]
            assert sum(parts) == pytest.approx(float(row["latency_ms"]), abs=0.1)


def test_the_trace_of_the_server_shows_what_the_robots_got(
    traced: tuple[str, Path],
    measured: tuple[dict[str, Any], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "trace.json"

    assert main(["trace", str(traced[1]), "--out", str(out), "--json"]) == 0

    setups = json.loads(capsys.readouterr().out)["setups"]
    served = sum(setup["requests"].get("served", 0) for setup in setups)
    assert served >= measured[0]["outcomes"]["served"]
    events = json.loads(out.read_text())["traceEvents"]
    begun = [event for event in events if event["ph"] == "b" and event["args"]]
    assert len({event["name"].partition("#")[0] for event in begun}) >= 6


def test_a_server_is_started_for_the_run_and_stopped_after_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    start = "--start=--model echo --latency-ms 2"

    assert main(["bench", start, "--robots", "2", "--json", *QUICK, *PATIENT]) == 0

    out, err = capsys.readouterr()
    assert json.loads(out)["issued"] == 40
    assert "starting takt serve --model echo --latency-ms 2" in err


def test_a_server_that_is_not_there_and_a_wrong_token_are_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    absent = main(["bench", "--server", "127.0.0.1:1", "--robots", "1", *QUICK])
    said = capsys.readouterr().err
    with openpi_server(token="sesame") as address:
        refused = main(["bench", "--server", address, "--robots", "1", *QUICK])

    assert absent == refused == 1
    assert said.startswith("takt: cannot connect to 127.0.0.1:1: ")
    assert capsys.readouterr().err == "takt: wrong token\n"


def test_a_stock_server_is_measured_without_stages(capsys: pytest.CaptureFixture[str]) -> None:
    with openpi_server() as address:
        options = ("--server", address, "--robots", "2", "--closed-loop", "--json")
        assert main(["bench", *options, *QUICK, *PATIENT]) == 0

    figures = json.loads(capsys.readouterr().out)
    assert "prefix" not in figures["split_ms"]
    assert figures["outcomes"]["served"] > 0


@pytest.mark.usefixtures("signals_are_heeded")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_all_its_processes_keeps_what_was_measured(
    number: signal.Signals, tmp_path: Path
) -> None:
    table = tmp_path / "requests.csv"
    options = ["--start=--model echo", "--robots", "2", "--processes", "2", "--seconds", "1"]
    command = [sys.executable, "-m", "takt.cli.main", "bench", *options, "--csv", str(table)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        next(line for line in lines if line.startswith("epoch 1 of"))

        os.killpg(process.pid, number)  # as a terminal or a service manager does

        rest = "".join(lines)
    assert process.returncode == 128 + number
    assert "broken off" in rest
    with table.open(newline="") as file:
        assert {row["epoch"] for row in csv.DictReader(file)} >= {"1"}
