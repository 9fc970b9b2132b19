"""The programs of ``docs/how-to/connect-a-robot.md`` run as they stand there."""

import re
from pathlib import Path

import pytest
from tests.integration.openpi_server import openpi_server

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "connect-a-robot.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_page_has_programs() -> None:
    assert len(PROGRAMS) == 4


@pytest.mark.parametrize("program", PROGRAMS, ids=["ask", "errors", "images", "control"])
def test_a_program_of_the_page_runs(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "server:8000" in program
    with openpi_server(metadata={"takt": {"model": "echo"}}) as address:
        exec(program.replace("server:8000", address), {})

    assert capsys.readouterr().out
