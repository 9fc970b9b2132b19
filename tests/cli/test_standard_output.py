"""Standard output on a full disk, and one whose reader has gone, under real commands."""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Generator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
from rich.console import Console

from takt.cli.main import COMMANDS, Entry, main
from takt.cli.standard_output import OutputFailedError, standard_output_watched
from takt.errors import TaktError

COMMAND_LINES = [
    ["--help"],
    ["--version"],
    ["simulate", "--help"],
    ["hardware"],
    ["hardware", "--json"],
    ["hardware", "--markdown"],
]
NO_SPACE = "takt: standard output: No space left on device\n"


@contextlib.contextmanager
def full() -> Generator[None, None, None]:
    """Standard output is a file on a full disk."""
    with Path("/dev/full").open("w", encoding="utf-8") as file, redirect_stdout(file):
        yield


@contextlib.contextmanager
def unread() -> Generator[None, None, None]:
    """Standard output is a pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as pipe, redirect_stdout(pipe):
        yield


def small() -> None:
    sys.stdout.write("a line\n")


def large() -> None:
    sys.stdout.write("x" * 100_000)


def at_once() -> None:
    sys.stdout.write("a line\n")
    sys.stdout.flush()


def by_rich() -> None:
    Console().print("a line")


def before_an_error() -> None:
    sys.stdout.write("a line\n")
    raise TaktError("the bread is burnt")


def before_ctrl_c() -> None:
    sys.stdout.write("a line\n")
    raise KeyboardInterrupt


def at_once_watched() -> None:
    with standard_output_watched():
        at_once()


PRINTING = [small, large, at_once, by_rich, before_an_error, before_ctrl_c]


@dataclass
class Says:
    """Say something."""

    how: ClassVar[list[Callable[[], None]]] = []

    def run(self) -> None:
        self.how[0]()


@pytest.fixture(params=PRINTING, ids=lambda how: how.__name__)
def say(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """``takt say`` prints in one of the ways commands do."""
    module = ModuleType("takt_saying")
    monkeypatch.setattr(Says, "how", [request.param])
    module.__dict__["Says"] = Says
    monkeypatch.setitem(sys.modules, "takt_saying", module)
    monkeypatch.setitem(COMMANDS, "say", Entry("takt_saying", "Says", "say"))


@pytest.mark.parametrize("arguments", COMMAND_LINES)
def test_a_full_disk_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with full():
        assert main(arguments) == 1
    assert capsys.readouterr().err == NO_SPACE


@pytest.mark.parametrize("arguments", COMMAND_LINES)
def test_a_reader_that_has_gone_ends_every_command_quietly_and_alike(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with unread():
        assert main(arguments) == 141
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("say")
def test_a_full_disk_is_one_line_however_a_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with full():
        assert main(["say"]) == 1
    assert capsys.readouterr().err == NO_SPACE


@pytest.mark.usefixtures("say")
def test_a_reader_that_has_gone_is_heard_of_however_a_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with unread():
        assert main(["say"]) == 141
    assert capsys.readouterr().err == ""


def test_a_failure_of_another_file_is_not_that_of_standard_output() -> None:
    other = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 - closing it fails, too
    with pytest.raises(OSError, match="No space left"), other, standard_output_watched():
        other.write("x" * 100_000)


def test_standard_output_is_the_same_again_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout

    with standard_output_watched():
        sys.stdout.write("a line\n")
        assert sys.stdout.isatty() == before.isatty()

    assert sys.stdout is before
    assert capsys.readouterr().out == "a line\n"


def test_what_failed_is_said_without_a_word_of_the_system_too() -> None:
    class Broken(io.StringIO):
        def write(self, text: str, /) -> int:
            raise OSError("telephone")

    with (
        pytest.raises(OutputFailedError, match=r"^standard output: telephone$"),
        redirect_stdout(Broken()),
    ):
        at_once_watched()
