"""What a command writes destroys nothing: not what it reads, and not the last good file."""

import dataclasses
import importlib
import json
import os
import shutil
from pathlib import Path

import pytest
from tests.cli.tracing.made import EXAMPLE, SERVED_AND_SUPERSEDED, lines_of, setup
from tests.client.episodes import write_episode
from tests.full_disk import FULL, full_disk
from tests.hardware.test_measured import PROFILE as MEASURED

from takt.cli import output_files
from takt.cli.benching.csv_file import write_csv
from takt.cli.evaluating.recording import Recorder
from takt.cli.main import COMMANDS, main
from takt.cli.output_files import (
    CSV,
    LOG,
    PROFILE,
    STEPS,
    TIMELINE,
    TRACE,
    Kind,
    check_named_after,
    check_outputs,
)
from takt.client.rollout import EpisodeResult
from takt.errors import UsageError


def test_files_of_folders_that_are_there_are_let_through(tmp_path: Path) -> None:
    read, old = tmp_path / "run.jsonl", tmp_path / "old.svg"
    read.write_text("lines")
    old.write_text("old")

    check_outputs([("--out", tmp_path / "t.json"), ("--plot", old), ("--csv", None)], read, None)
    check_outputs([("--out", Path("/dev/null")), ("--plot", Path("/dev/null"))], Path("/dev/null"))


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("none/t.json", r"no folder .*none$"),
        (".", r"is a folder; expected the name of a file$"),
        ("run.jsonl", r"is the file that is read; give another file$"),
        ("./x/../run.jsonl", r"is the file that is read; give another file$"),
        ("link.jsonl", r"is the file that is read; give another file$"),
        ("linked.jsonl", r"is the file that is read; give another file$"),
    ],
)
def test_an_output_that_cannot_be_is_refused_by_its_flag(
    tmp_path: Path, output: str, said: str
) -> None:
    (tmp_path / "x").mkdir()
    read = tmp_path / "run.jsonl"
    read.write_text("lines")
    (tmp_path / "link.jsonl").symlink_to(read)
    (tmp_path / "linked.jsonl").hardlink_to(read)

    with pytest.raises(UsageError, match=f"^--out .*: {said}"):
        check_outputs([("--out", tmp_path / output)], read)


def test_an_output_is_not_written_twice(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a.svg")

    for other in ("a.svg", "link"):
        with pytest.raises(UsageError, match=r"^--plot .*: is the file of --out; give another"):
            check_outputs([("--out", tmp_path / "a.svg"), ("--plot", tmp_path / other)])


def test_an_input_that_is_not_there_is_for_its_reader_to_tell(tmp_path: Path) -> None:
    check_outputs([("--out", tmp_path / "t.json")], tmp_path / "nowhere.jsonl")


def test_files_are_named_after_a_file_alone(tmp_path: Path) -> None:
    check_named_after("--trace", None)
    check_named_after("--trace", tmp_path / "run.jsonl")

    for path, said in (
        (Path("/dev/full"), "is no ordinary file"),
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "run.jsonl", "no folder"),
    ):
        with pytest.raises(UsageError, match=rf"^--trace {path}: {said}"):
            check_named_after("--trace", path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
@pytest.mark.parametrize("name", ["old.json", "folder/new.json"])
def test_where_nobody_may_write_is_told_before_the_work(tmp_path: Path, name: str) -> None:
    (tmp_path / "old.json").touch(0o444)
    (tmp_path / "folder").mkdir(0o555)

    with pytest.raises(UsageError, match=rf"^--out .*{name}: you may not write there$"):
        check_outputs([("--out", tmp_path / name)])


# What is there is replaced by its own kind alone


KINDS = [kind for kind in vars(output_files).values() if isinstance(kind, Kind)]


@pytest.fixture
def written(tmp_path: Path) -> dict[Kind, Path]:
    """A file of each kind, by whoever writes it."""
    files = {kind: tmp_path / kind.name for kind in KINDS}
    MEASURED.write(files[PROFILE])
    files[TRACE].write_text("".join(lines_of((setup(), SERVED_AND_SUPERSEDED))))
    write_episode(files[LOG])
    write_csv([], files[CSV])
    with Recorder(trace=files[STEPS], strip=None) as recorder:
        recorder.finished(EpisodeResult(index=0, is_solved=True, steps=1, chunks=1))
    assert main(["trace", str(files[TRACE]), "--out", str(files[TIMELINE])]) == 0
    return files


def is_replaced(path: Path, kind: Kind) -> bool:
    try:
        check_outputs([("--out", path, kind)])
    except UsageError as error:
        said = str(error)
    else:
        return True
    assert said.startswith(f"--out {path}: expected no file or an earlier {kind.name}, found one")
    return False


def test_a_file_is_replaced_by_one_of_its_kind_and_by_no_other(
    written: dict[Kind, Path],
) -> None:
    for kind in KINDS:
        assert [other for other, path in written.items() if is_replaced(path, kind)] == [kind]


def test_a_file_that_was_cut_short_or_laid_out_anew_is_of_its_kind_still(
    written: dict[Kind, Path],
) -> None:
    for kind, path in written.items():
        whole = path.read_bytes()
        for length in (0, 1, 5, len(whole) // 2):
            path.write_bytes(whole[:length])
            assert is_replaced(path, kind)
    written[PROFILE].write_text(json.dumps(json.loads(MEASURED.to_json()), indent=2))
    assert is_replaced(written[PROFILE], PROFILE)


@pytest.mark.parametrize("content", ["models: {}", "[]", "x" * 9999, "\xff\n\n", "# A fleet\n"])
def test_what_is_found_is_shown_on_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(content, encoding="latin-1")

    with pytest.raises(UsageError) as refused:
        check_outputs([("--out", path, PROFILE)])

    said = str(refused.value).removeprefix(f"--out {path}: ")
    assert said.startswith("expected no file or an earlier profile, found one that begins with ")
    assert "\n" not in said
    assert len(said) < 120


ECHO = ["serve", "--model", "echo", "--openpi", "0"]
PACED = ["serve", "--paced", "h100", "--model", "pi0", "--openpi", "0"]
BENCH = ["bench", "--server", "h:1"]
TWO_PACED = """
models: {pi0: {slo_ms: 156}}
devices: {left: {paced: h100, models: [pi0]}, right: {paced: h100, models: [pi0]}}
"""
ROBOT = ["robot", "--env", "metaworld:door-open-v3", "--server", "h:1"]
EVAL = ["eval", "--env", "metaworld:door-open-v3", "--in-process"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["trace", "{}", "--out", "{}"],
        ["trace", "{}", "--plot", "{}"],
        ["episode", "show", "{}", "--plot", "{}"],
        ["simulate", "{}", "--plot", "{}"],
        [*BENCH, "--token-file", "{}", "--csv", "{}"],
        [*BENCH, "--token-file", "{}", "--plot", "{}"],
        [*ECHO, "--token-file", "{}", "--trace", "{}"],
        [*PACED, "--profile", "{}", "--trace", "{}"],
    ],
    ids=" ".join,
)
def test_no_command_writes_over_what_it_reads(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "all.svg"
    shutil.copy(EXAMPLE, path)  # a fleet file, where that matters

    assert main([part.replace("{}", str(path)) for part in arguments]) == 1

    assert capsys.readouterr().err == (
        f"takt: {arguments[-2]} {path}: is the file that is read; give another file\n"
    )
    assert path.read_bytes() == EXAMPLE.read_bytes()


@pytest.mark.parametrize(
    ("command", "name", "text"),
    [
        (["simulate", "{}"], "run-gpu0.jsonl", EXAMPLE.read_text()),
        (["serve", "--fleet", "{}"], "run-left.jsonl", TWO_PACED),
    ],
    ids=["simulate", "serve"],
)
def test_a_trace_named_after_another_file_is_not_the_fleet_file_either(
    tmp_path: Path, command: list[str], name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = tmp_path / name
    fleet.write_text(text)
    filled = [part.format(fleet) for part in command]

    assert main([*filled, "--trace", str(tmp_path / "run.jsonl")]) == 1

    assert f"--trace {fleet}: is the file that is read" in capsys.readouterr().err
    assert fleet.read_text() == text


@pytest.mark.parametrize(
    "arguments",
    [
        ["trace", "nowhere.jsonl", "--out", "{}.svg", "--plot", "{}.svg"],
        [*BENCH, "--csv", "{}.svg", "--plot", "{}.svg"],
        ["profile", "--model", "echo", "--out", "{}.svg", "--plot", "{}.svg"],
        [*EVAL, "--trace", "{}.jpg", "--strip", "{}.jpg"],
        [*ROBOT, "--trace", "{}.jpg", "--strip", "{}.jpg"],
        [*ROBOT, "--log", "{}", "--trace", "{}"],
        [*ROBOT, "--episodes", "3", "--log", "{}.jpg", "--strip", "{}-2.jpg"],
        ["simulate", str(EXAMPLE), "--trace", "{}.svg", "--plot", "{}-gpu0.svg"],
    ],
    ids=lambda arguments: " ".join((arguments[0], arguments[-4], arguments[-2])),
)
def test_no_command_writes_two_things_into_one_file(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [part.replace("{}", str(tmp_path / "all")) for part in arguments]

    assert main(filled) == 1

    assert capsys.readouterr().err == (
        f"takt: {filled[-2]} {filled[-1]}: is the file of {filled[-4]}; give another file\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", str(EXAMPLE), "--trace", "/dev/full"],
        [*ROBOT, "--episodes", "2", "--log", "/dev/full"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_file_is_named_after_a_device(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {*Path("/dev").glob("full*")}

    assert main(arguments) == 1

    assert f"{arguments[-2]} /dev/full: is no ordinary file" in capsys.readouterr().err
    assert {*Path("/dev").glob("full*")} == before


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("t.json", ["trace", "{folder}/run.jsonl", "--out", "{path}"]),
        ("run-gpu0.jsonl", ["simulate", str(EXAMPLE), "--seconds=1", "--trace={folder}/run.jsonl"]),
        pytest.param(
            "t.svg", ["trace", "{folder}/run.jsonl", "--plot", "{path}"], marks=pytest.mark.slow
        ),
        pytest.param(
            "e.png",
            ["episode", "show", "{folder}/e.jsonl", "--plot={path}"],
            marks=pytest.mark.slow,
        ),
        pytest.param("h.svg", ["hardware", "--plot", "{path}"], marks=pytest.mark.slow),
    ],
    ids=lambda given: given if isinstance(given, str) else given[0],
)
def test_a_full_disk_leaves_the_last_good_file(
    tmp_path: Path, name: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.jsonl").write_text("".join(lines_of((setup(), SERVED_AND_SUPERSEDED))))
    write_episode(tmp_path / "e.jsonl")
    path = tmp_path / name
    command = [part.format(folder=tmp_path, path=path) for part in arguments]
    assert main(command) == 0
    good, files = path.read_bytes(), {*tmp_path.iterdir()}
    capsys.readouterr()

    with full_disk():
        status = main(command)

    assert status == 1
    assert FULL in capsys.readouterr().err
    assert path.read_bytes() == good
    assert {*tmp_path.iterdir()} == files


TEXTS = {
    ("profile", "out"): ["--model", "echo"],
    ("trace", "out"): ["nowhere.jsonl"],
    ("simulate", "trace"): [str(EXAMPLE)],
    ("serve", "trace"): ECHO[1:],
    ("robot", "log"): ROBOT[1:],
    ("robot", "trace"): ROBOT[1:],
    ("eval", "trace"): EVAL[1:],
    ("bench", "csv"): BENCH[1:],
}
"""Options by which text is written, and what else their command needs."""
PICTURES = {
    *(("bench", "plot"), ("episode", "plot"), ("hardware", "plot"), ("profile", "plot")),
    *(("simulate", "plot"), ("trace", "plot"), ("eval", "strip"), ("robot", "strip")),
}
READ = {
    *(("serve", "fleet"), ("serve", "profile"), ("serve", "strict_spec"), ("serve", "token_file")),
    *(("serve", "model_root"), ("serve", "state_dir"), ("serve", "engine_cache")),
    *(("serve", "tokenizer"), ("export", "tokenizer"), ("policy", "tokenizer")),
    *(("plan", "fleet"), ("plan", "profile"), ("simulate", "fleet"), ("export", "cache")),
    *(("bench", "token_file"), ("drive", "token_file")),
    *(("episode", "file"), ("replay", "trace"), ("trace", "trace")),
    *(("export", "path"), ("policy", "path"), ("policy", "directory")),
}


def test_every_option_that_names_a_file_is_one_of_these() -> None:
    found = {
        (name, option.name)
        for name, entry in COMMANDS.items()
        for made in vars(importlib.import_module(entry.module)).values()
        if isinstance(made, type) and made.__module__ == entry.module and hasattr(made, "run")
        for option in dataclasses.fields(made)
        if "Path" in str(option.type)
    }

    assert found == {*TEXTS, *PICTURES, *READ}


@pytest.mark.parametrize(("command", "option"), TEXTS)
def test_no_command_writes_over_what_is_clearly_something_else(
    command: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fleet.yaml"
    found = tmp_path / ("fleet-gpu0.yaml" if command == "simulate" else "fleet.yaml")
    shutil.copy(EXAMPLE, found)

    assert main([command, *TEXTS[command, option], f"--{option}", str(path)]) == 1

    said = capsys.readouterr().err
    assert said.startswith(f"takt: --{option} {found}: expected no file or an earlier ")
    assert said.count("\n") == 1
    assert found.read_bytes() == EXAMPLE.read_bytes()
