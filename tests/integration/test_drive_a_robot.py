"""``docs/how-to/drive-a-robot.md`` and ``examples/robot_client.py`` run as they stand there."""

import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.gateway_server import GatewayServer
from tests.integration.openpi_server import openpi_server

from takt.cli.main import main
from takt.client.episode import read_episode, summary
from takt.units import seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "drive-a-robot.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^takt (episode .*)$", PAGE.read_text(), re.MULTILINE)
EXAMPLE = ROOT / "examples" / "robot_client.py"
TAKT = {"takt": {"version": "0", "model": "echo"}}


@pytest.fixture(autouse=True)
def signal_handlers_are_put_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_programs_of_the_page_drive_a_robot_and_its_commands_show_the_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(PROGRAMS) == 2
    assert "server:8000" in PROGRAMS[1]
    with openpi_server(metadata=TAKT) as address:
        program = "\n".join(PROGRAMS).replace("server:8000", address)
        # On a slow computer an answer may be late, and that is no failure here.
        for rule, patient in (("age=ms(1500)", "age=ms(60_000)"), ("ms(500)", "ms(60_000)")):
            assert rule in program
            program = program.replace(rule, patient)
        exec(program, {})

    said = capsys.readouterr().out
    assert re.search(r"state=<State\.(ACTIVE|DEGRADED)", said)
    assert "stopped: stop" in said
    assert len(COMMANDS) == 3
    assert [main(shlex.split(command)) for command in COMMANDS] == [0, 0, 0]
    assert (tmp_path / "run.svg").exists()


def test_the_example_drives_its_arm_through_a_real_server(tmp_path: Path) -> None:
    example = runpy.run_path(str(EXAMPLE))
    settings = example["SETTINGS"]
    patient = replace(settings.contract, max_action_age=seconds(60), t_hold=seconds(60))
    example["main"].__globals__["SETTINGS"] = replace(settings, contract=patient)
    server = GatewayServer()
    try:
        status = example["main"](
            f"127.0.0.1:{server.port}", duration_s=1.0, log=tmp_path / "run.jsonl"
        )
    finally:
        server.close()

    assert status.state.value in {"active", "degraded"}
    assert not status.failures
    figures = summary(read_episode(tmp_path / "run.jsonl"))
    assert figures["is_complete"]
    assert figures["executed"] > 5
    assert {"prefix", "denoise"} & set(figures["parts_ms"])


@pytest.mark.usefixtures("signals_are_heeded")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_arm_of_the_example_and_closes_its_log(
    number: signal.Signals, tmp_path: Path
) -> None:
    log = tmp_path / "run.jsonl"
    server = GatewayServer()
    try:
        command = [sys.executable, EXAMPLE, f"127.0.0.1:{server.port}", "--seconds", "60"]
        with subprocess.Popen([*command, "--log", log], stdout=subprocess.PIPE) as process:
            pause = threading.Event()
            while not (log.exists() and '"action"' in log.read_text()):
                assert process.poll() is None
                pause.wait(0.05)
            process.send_signal(number)
            said, _ = process.communicate(timeout=60)
    finally:
        server.close()

    assert process.returncode == 0
    assert said.startswith(b"stopped: ")
    figures = summary(read_episode(log))
    assert figures["is_complete"]
    assert figures["changes"][-1]["cause"] == "stop"


def test_the_example_says_why_a_robot_does_not_start() -> None:
    example = runpy.run_path(str(EXAMPLE))["main"]
    example.__globals__["seconds"] = lambda value: int(value * 1e7)  # a tenth of a second

    with pytest.raises(SystemExit, match="the robot did not start: cannot connect to 127"):
        example("127.0.0.1:1", duration_s=0.0, log=None)


def test_the_example_says_how_it_is_used() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "80"},
    )

    assert "host:port of the server" in done.stdout
