"""The page about measuring shows commands that run and a picture that its commands draw."""

import re
import shlex
from pathlib import Path

import pytest

from takt.cli.main import main

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "how-to" / "measure-a-server.md").read_text(encoding="utf-8")
TYPED = re.compile(r"^takt (.+)$", re.MULTILINE)
DRAWN = re.compile(r"<!-- (.+?) -->")


def commands(beginning: str) -> list[list[str]]:
    """What the page tells to type after ``takt``, as words."""
    return [shlex.split(line) for line in TYPED.findall(TEXT) if line.startswith(beginning)]


def test_the_server_that_the_page_starts_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAKT_TOKEN", raising=False)
    (command,) = commands("bench --start")

    short = ["--slo-ms", "20000", "--warm-up-seconds", "0.5", "--epochs", "2"]
    assert main([*command, *short]) == 0

    out = capsys.readouterr().out
    # On a busy computer a robot may still await an answer when its next observation is due.
    assert re.search(r"8 robots (hold|do not hold) 98\.00%", " ".join(out.split()))
    assert "where the time went" in out


def test_the_picture_is_what_its_commands_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fleet,) = re.findall(r"```yaml\n# lab\.yaml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "lab.yaml").write_text(fleet, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    for command in [*commands("simulate"), *commands("trace")]:
        assert main(command) == 0

    shown = (ROOT / "docs" / "images" / "trace.svg").read_text(encoding="utf-8")
    drawn = (tmp_path / "trace.svg").read_text(encoding="utf-8")
    assert DRAWN.findall(drawn) == DRAWN.findall(shown)
    assert (tmp_path / "trace.json").exists()
