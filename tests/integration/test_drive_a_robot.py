"""``docs/how-to/drive-a-robot.md`` and ``examples/robot_client.py`` run as they stand there."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.gateway_server import GatewayServer
from tests.integration.openpi_server import openpi_server

from takt.cli.main import main
from takt.client.episode import read_episode, summary

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "drive-a-robot.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^takt (episode .*)$", PAGE.read_text(), re.MULTILINE)
EXAMPLE = ROOT / "examples" / "robot_client.py"
TAKT = {"takt": {"version": "0", "model": "echo"}}


def test_the_programs_of_the_page_drive_a_robot_and_its_commands_show_the_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(PROGRAMS) == 2
    assert "server:8000" in PROGRAMS[1]
    with openpi_server(metadata=TAKT) as address:
        exec("\n".join(PROGRAMS).replace("server:8000", address), {})

    said = capsys.readouterr().out
    assert "state=<State.ACTIVE" in said
    assert "stopped: stop" in said
    assert len(COMMANDS) == 3
    assert [main(shlex.split(command)) for command in COMMANDS] == [0, 0, 0]
    assert (tmp_path / "run.svg").exists()


def test_the_example_drives_its_arm_through_a_real_server(tmp_path: Path) -> None:
    example = runpy.run_path(str(EXAMPLE))
    server = GatewayServer()
    try:
        status = example["main"](
            f"127.0.0.1:{server.port}", duration_s=1.0, log=tmp_path / "run.jsonl"
        )
    finally:
        server.close()

    assert status.state.value == "active"
    assert not status.failures
    figures = summary(read_episode(tmp_path / "run.jsonl"))
    assert figures["is_complete"]
    assert figures["executed"] > 5
    assert {"prefix", "denoise"} & set(figures["parts_ms"])


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
