"""A ``takt serve`` that cannot start says why once, in its last line, and exits with status 1."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from takt.runtime.trace_file import begin_trace

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TIMEOUT_S = 60.0
SERVE = (sys.executable, "-m", "takt.cli.main", "serve")
ECHO = ("--model", "echo", "--openpi", "0")
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d ")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that something else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def refused(*options: str) -> list[str]:
    """What it says, apart from its log."""
    done = subprocess.run(
        [*SERVE, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env={k: v for k, v in os.environ.items() if k != "TAKT_TOKEN"},
    )
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert not LOG_LINE.match(lines[-1])
    return [line for line in lines if not LOG_LINE.match(line)]


def test_a_port_that_is_taken_is_one_line(taken: int) -> None:
    assert refused("--model", "echo", "--openpi", str(taken)) == [
        f"takt: gateway-0: cannot listen on 127.0.0.1 port {taken}: Address already in use"
    ]


def test_a_port_of_a_later_door_that_is_taken_ends_the_server_too(taken: int) -> None:
    pytest.importorskip("grpc")
    said = refused(*ECHO, "--lerobot", str(taken))

    assert said[-1] == (f"takt: gateway-0: cannot listen on 127.0.0.1 port {taken}: is it taken?")
    assert str(taken) not in "".join(said[:-1])


def test_a_policy_that_does_not_exist_is_one_line_before_any_process() -> None:
    (said,) = refused("--model", "mni", "--openpi", "0")

    assert said.startswith("takt: model mni: no policy ")
    assert said.endswith("known: echo, mini, or the directory of a checkpoint")


def test_a_checkpoint_that_is_broken_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")

    assert refused("--model", f"arm={tmp_path}", "--openpi", "0") == [
        "takt: gateway-0: model arm: config.json.type: expected a text, got no such key"
    ]


def test_a_program_that_started_it_is_told_the_reason_too(taken: int) -> None:
    done = subprocess.run(
        [*SERVE, "--json", "--model", "echo", "--openpi", str(taken)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )

    (failed,) = [
        event for event in map(json.loads, done.stdout.splitlines()) if event["event"] == "failed"
    ]
    assert failed["process"] == "gateway-0"
    assert done.stderr == f"takt: gateway-0: {failed['reason']}\n"


def test_a_trace_that_another_server_writes_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    held = begin_trace(str(path))
    path.write_text('{"takt_trace":1}\n')
    try:
        said = refused(*ECHO, "--trace", str(path))
    finally:
        os.close(held)

    assert said == [
        f"takt: --trace {path}: another server (process {os.getpid()}) still writes it; one that"
        " was stopped does so for some seconds: try again, or give another file"
    ]
    assert path.read_text() == '{"takt_trace":1}\n'


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--host", "0.0.0.0"), "lets other computers in: give a token"),
        (("--host", "999.1.1.1"), "host '999.1.1.1'"),
        (("--prefix-cores", "9999"), "--prefix-cores: no core 9999 here"),
        (("--network-allowance-ms", "-5"), "--network-allowance-ms must lie in 0 to 1000, got -5"),
        (("--lerobot", "0", "--allow-from", "x"), "--allow-from 'x'"),
        (("--lerobot", "0", "--state-dir", "/dev/null"), "--state-dir /dev/null"),
        (("--horizon", "0"), "horizon must lie in 1..1000, got 0"),
        (("--model-root", "/nope"), "--model-root /nope: no such folder"),
        (("--model-root", "/", "--model", "b=../x"), "must be relative and without '..'"),
    ],
)
def test_every_other_reason_is_said_once_and_last(options: tuple[str, ...], why: str) -> None:
    said = refused(*ECHO, *options)

    assert said[-1].startswith("takt: ")
    assert why in said[-1]
    assert why not in "".join(said[:-1])
