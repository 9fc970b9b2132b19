"""Whatever goes wrong on purpose is one line on stderr and exit status 1."""

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

import takt.cli.main
from takt import __version__
from takt.cli.main import COMMANDS, Entry, main
from takt.errors import TaktError

MISSING = "a_package_nobody_has"


@dataclass
class Fails:
    """Fail."""

    raises: ClassVar[BaseException] = TaktError("the bread is burnt")

    def run(self) -> None:
        raise type(self).raises


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> type[Fails]:
    """``takt fail``, which raises what its ``raises`` says."""
    module = ModuleType("takt_failing")
    kind = dataclass(type("Fails", (Fails,), {"__doc__": "Fail."}))
    module.__dict__["Fails"] = kind
    monkeypatch.setitem(sys.modules, "takt_failing", module)
    monkeypatch.setitem(COMMANDS, "fail", Entry("takt_failing", "Fails", "fail"))
    return kind


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, **how: tuple[int, ...]) -> str:
    """The one line a refused command prints."""
    status = main(arguments, **how)
    out, err = capsys.readouterr()
    assert (status, out) == (1, "")
    assert err.startswith("takt: ")
    assert err.count("\n") == 1
    return err.removeprefix("takt: ").rstrip("\n")


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_lists_every_command(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 0

    shown = capsys.readouterr().out
    assert shown.startswith("usage: takt COMMAND")
    assert all(f"  {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_explains_its_options(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main([name, "--help"]) == 0

    assert f"usage: takt {name}" in capsys.readouterr().out


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"takt {__version__}\n"


def test_an_unknown_command_is_refused_with_those_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    message = refused(capsys, "simulat")

    assert message == f"no command 'simulat'; commands: {', '.join(COMMANDS)}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["fleet.yaml", "--sed", "3"], "Unrecognized options: --sed, 3; see: takt simulate --help"),
        (["fleet.yaml", "--seed", "x"], "--seed: expected a whole number, got 'x'"),
        (["fleet.yaml", "--seed"], "Missing value for argument '--seed'"),
        ([], "Missing from takt simulate: FLEET.yaml"),
        (["one.yaml", "two.yaml"], "Unrecognized options: two.yaml; see"),
    ],
)
def test_a_bad_option_is_refused_on_one_line(
    capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    said = refused(capsys, "simulate", *options)

    assert said.startswith(message)
    assert said.endswith("; see: takt simulate --help")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["drive", "h:1", "--rate-hz", "x"], "--rate-hz: expected a number, got 'x'"),
        (["drive", "h:1", "--slo-ms", "x"], "--slo-ms: expected a number, got 'x'"),
        (["serve", "--openpi", "1.5"], "--openpi: expected a whole number, got '1.5'"),
        (["serve", "--lerobot", "x"], "--lerobot: expected a whole number, got 'x'"),
    ],
)
def test_what_is_no_number_is_refused_by_the_name_of_its_option(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert refused(capsys, *arguments) == f"{message}; see: takt {arguments[0]} --help"


def test_a_mistyped_option_is_named_before_one_that_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert refused(capsys, "eval", "--evn", "x") == (
        "Unrecognized options: --evn x; see: takt eval --help"
    )
    assert refused(capsys, "eval").startswith("Missing from takt eval: --env")


@pytest.mark.parametrize("options", [("--port", "8000"), ("--port=8000",), ("--json", "--port")])
def test_an_option_that_has_another_name_here_is_refused_with_that_name(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    hint = "the port of the openpi door is --openpi"

    said = refused(capsys, "serve", *options)

    assert said.startswith("Unrecognized options: --port")
    assert said.endswith(f"; {hint}; see: takt serve --help")
    assert hint not in refused(capsys, "serve", "--pot", "8000")
    assert hint not in refused(capsys, "bench", *options)


def test_what_is_missing_is_named_without_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "robot") == (
        "Missing from takt robot: --env STR, --server STR; see: takt robot --help"
    )
    assert refused(capsys, "drive") == "Missing from takt drive: ADDRESS; see: takt drive --help"
    assert refused(capsys, "models", "unload") == (
        "Missing from takt models unload: NAME; see: takt models --help"
    )


def test_a_mistyped_subcommand_is_refused_with_those_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert refused(capsys, "models", "lst") == (
        "Unrecognized options: lst; available subcommands: list, load, unload;"
        " see: takt models --help"
    )


def test_an_error_of_ours_is_one_line(
    capsys: pytest.CaptureFixture[str], failing: type[Fails]
) -> None:
    assert refused(capsys, "fail") == "the bread is burnt"


def test_a_fault_of_the_program_keeps_its_traceback(failing: type[Fails]) -> None:
    failing.raises = ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        main(["fail"])


def test_an_interrupted_command_says_nothing(
    capsys: pytest.CaptureFixture[str], failing: type[Fails]
) -> None:
    failing.raises = KeyboardInterrupt()

    assert main(["fail"]) == 130
    failing.raises = KeyboardInterrupt(signal.SIGTERM)
    assert main(["fail"]) == 143
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_has_gone_ends_a_command_quietly(
    capfd: pytest.CaptureFixture[str], failing: type[Fails]
) -> None:
    failing.raises = BrokenPipeError()

    assert main(["fail"]) == 141
    assert capfd.readouterr().err == ""


def test_commands_refuse_python_3_10_and_say_what_runs_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    message = refused(capsys, "simulate", "fleet.yaml", python=(3, 10, 14))

    assert message == (
        "the commands need Python 3.11 or later, this is 3.10.14;"
        " the client library (takt.client) runs on 3.10"
    )


def test_help_and_version_work_on_python_3_10() -> None:
    assert main(["--help"], python=(3, 10, 0)) == main(["--version"], python=(3, 10, 0)) == 0


def test_the_oldest_python_that_runs_commands_is_accepted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert refused(capsys, "simulate", "nowhere.yaml", python=(3, 11, 0)) == (
        "nowhere.yaml: no such file"
    )


@pytest.mark.parametrize("module", [MISSING, f"{MISSING}.part"])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(COMMANDS, "fail", Entry(module, "Fails", "fail"))

    assert refused(capsys, "fail") == (
        f"takt fail needs {MISSING}, which comes with: pip install 'takt-serve[server]'"
    )


def test_a_missing_module_of_our_own_is_a_fault_and_not_a_missing_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(COMMANDS, "fail", Entry("takt.cli.nowhere", "Fails", "fail"))

    with pytest.raises(ModuleNotFoundError):
        main(["fail"])


def test_asking_for_help_imports_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> ModuleType:
        raise AssertionError(name)

    monkeypatch.setattr(takt.cli.main.importlib, "import_module", refuse)

    assert main(["--help"]) == 0


def test_every_command_is_where_the_table_says() -> None:
    source = Path(takt.cli.main.__file__).parent

    for entry in COMMANDS.values():
        assert (source / f"{entry.module.rpartition('.')[2]}.py").is_file()
