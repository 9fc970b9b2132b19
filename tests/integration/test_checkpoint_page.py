"""The page "Serve your LeRobot checkpoint in five minutes" does what it says, step by step."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from takt.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "serve-a-lerobot-checkpoint.md"
GOLDEN = ROOT / "tests" / "golden" / "policies" / "smolvla"

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [body for kind, body in found if kind == language]


def words(command: str) -> list[str]:
    """What follows ``takt``."""
    name, *rest = shlex.split(command)
    assert name == "takt"
    return rest


def test_every_step_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the networks need torch")
    checkpoint = tmp_path / "fold" / "pretrained_model"
    shutil.copytree(GOLDEN / "checkpoint", checkpoint)
    for file in (*(GOLDEN / "tokenizer").iterdir(), GOLDEN / "dims.json"):
        shutil.copyfile(file, checkpoint / file.name)
    shutil.copytree(GOLDEN, tmp_path / "golden")
    install, show, serve, export, compiled, verify = (block.strip() for block in blocks("sh"))
    assert compiled == f"{serve} --engine openvino"
    assert install.startswith("pip install 'takt-serve[server,policies]'")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert [main(words(command)) for command in (show, export, verify)] == [0, 0, 0]
    assert len(list((tmp_path / "cache" / "takt" / "engines").iterdir())) == 1
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "takt.cli.main", *words(compiled), "--deterministic"),
            *("--json", "--openpi", "0", "--slo-ms", "30000", "--hang-ms", "30000"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port = _port_when_ready(server)
        (client,) = blocks("python")
        done = subprocess.run(
            [sys.executable, "-c", client.replace(":8000", f":{port}")],
            check=True,
            capture_output=True,
            text=True,
        )
    finally:
        server.terminate()
        server.communicate(timeout=60)

    assert done.stdout.strip() == "(50, 7)"


def _port_when_ready(server: "subprocess.Popen[str]") -> int:
    port = 0
    assert server.stdout is not None
    for line in server.stdout:
        event = json.loads(line)
        assert event["event"] != "model_failed", event
        port = event.get("port", port)
        if event["event"] == "ready" and event["process"].startswith("gateway"):
            return port
    raise AssertionError("the server ended")
