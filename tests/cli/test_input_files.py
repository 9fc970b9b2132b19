"""A file or folder that a command cannot use is refused on one line, by the option naming it."""

import os
from pathlib import Path

import pytest
from tests.policies.lerobot.checkpoints import SMOLVLA

from takt.cli.input_files import check_folder, check_tokenizer, named_by
from takt.cli.main import main
from takt.errors import ConfigError, UsageError

ECHO = ["serve", "--model", "echo", "--openpi", "0"]
PACED = ["serve", "--paced", "h100", "--model", "pi0", "--openpi", "0"]
CHECKPOINT = str(SMOLVLA / "checkpoint")


def test_the_option_stands_before_what_is_wrong_with_its_file() -> None:
    with pytest.raises(ConfigError, match=r"^--profile a\.json: is torn$"), named_by("--profile"):
        raise ConfigError("a.json: is torn")
    with pytest.raises(UsageError, match=r"^--g must be less$"), named_by("--profile"):
        raise UsageError("--g must be less")


def test_a_folder_may_be_missing_and_must_be_none_of_anything_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    for path in (None, tmp_path, tmp_path / "none"):
        check_folder("--cache", path)
    with pytest.raises(ConfigError, match=r"^--cache .*file: is no folder$"):
        check_folder("--cache", tmp_path / "file")


def test_a_tokenizer_is_a_file_or_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")

    for path in (None, tmp_path, tmp_path / "tokenizer.json"):
        check_tokenizer(path)
    with pytest.raises(ConfigError, match=r"^--tokenizer .*none: no such file; expected a tok"):
        check_tokenizer(tmp_path / "none")


FILES = [
    [*ECHO, "--token-file"],
    [*ECHO, "--strict-spec"],
    [*ECHO, "--profile"],
    [*PACED, "--profile"],
    ["serve", "--fleet"],
    ["plan", "--model", "pi0", "--profile"],
    ["drive", "127.0.0.1:1", "--token-file"],
    ["simulate"],
    ["plan"],
    ["trace"],
    ["replay"],
    ["episode", "show"],
]
"""Up to the name of a file that is read."""


@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "long", "closed"])
@pytest.mark.parametrize("command", FILES, ids=lambda command: f"{command[0]} {command[-1]}")
def test_a_file_that_cannot_be_read_is_one_line_that_names_its_option(
    command: list[str], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / ("n" * 300 if kind == "long" else "given")
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind == "closed":
        if os.geteuid() == 0:
            pytest.skip("root may read everything")
        path.touch(0)

    assert main([*command, str(path)]) == 1

    said = capsys.readouterr().err
    option = f"{command[-1]} " if command[-1].startswith("--") else ""
    name = path.name if command[0] == "episode" else path
    assert said.startswith(f"takt: {option}{name}: ")
    assert said.count("\n") == 1


FOLDERS = [
    [*ECHO, "--model-root"],
    [*ECHO, "--engine-cache"],
    [*ECHO, "--lerobot", "0", "--state-dir"],
    ["export", CHECKPOINT, "--cache"],
]


@pytest.mark.parametrize("command", FOLDERS, ids=lambda command: f"{command[0]} {command[-1]}")
def test_a_file_in_place_of_a_folder_is_one_line_that_names_its_option(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.touch()

    assert main([*command, str(path)]) == 1

    assert capsys.readouterr().err == f"takt: {command[-1]} {path}: is no folder\n"


@pytest.mark.parametrize(
    "command",
    [ECHO, ["export", CHECKPOINT], ["policy", "show", CHECKPOINT]],
    ids=lambda command: command[0],
)
def test_a_tokenizer_that_is_not_there_is_said_at_once(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for given, looked_for in ((tmp_path / "none", "none"), (tmp_path, "tokenizer.json")):
        assert main([*command, "--tokenizer", str(given)]) == 1

        where = tmp_path / looked_for
        assert capsys.readouterr().err == (
            f"takt: --tokenizer {where}: no such file; expected a tokenizer\n"
        )


@pytest.mark.parametrize(
    "command",
    [["policy", "show"], ["export"], ["policy", "verify"], ["serve", "--openpi", "0", "--model"]],
    ids=" ".join,
)
def test_a_checkpoint_by_a_name_that_no_folder_can_have_is_one_line(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = "arm=" if command[-1] == "--model" else ""

    assert main([*command, prefix + "n" * 300]) == 1

    assert capsys.readouterr().err.count("\n") == 1
