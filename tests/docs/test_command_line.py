"""The page about the command line says what the commands say."""

import re
from pathlib import Path

import pytest
from tests.docs.command_page import page, sections

from takt.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
PRINTED = re.compile(r"^(?:[│|] |  )(--[a-z-]+)", re.MULTILINE)
OPTION = re.compile(r"^\| `\[?(--[a-z-]+)", re.MULTILINE)


def test_the_page_is_what_the_commands_say_today() -> None:
    written = PAGE.read_text(encoding="utf-8")

    assert written == page(), "python -m tests.docs.command_page > docs/reference/command-line.md"


@pytest.mark.parametrize("command", sections())
def test_every_option_of_the_help_stands_on_the_page_and_no_other(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    on_page = set(OPTION.findall(sections()[command]))

    main([*command.split(), "--help"])

    printed = capsys.readouterr().out
    assert on_page == set(PRINTED.findall(printed))
