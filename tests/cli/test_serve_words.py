"""What is said of a server's processes."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest

from takt.cli.serve_words import Narrator, say_choice, say_choosing, say_json, say_stopped
from takt.cli.standard_output import OutputFailedError, standard_output_watched

EVENTS: Mapping[str, Mapping[str, Any]] = {
    "lockstep from now on, before flowing": {
        "event": "formation_switched",
        "after": "lockstep",
        "before": "flowing",
    },
    "6 ask; kept: 9 robots predicted": {
        "event": "formation_reconsidered",
        "because": "6 ask",
        "verdict": "kept: 9 robots predicted",
        "switches": False,
    },
    "not idle for 60 s, so it keeps flowing": {
        "event": "formation_waits",
        "before": "flowing",
        "after": "lockstep",
        "waited_s": 60.2,
    },
    "keeps its formation: no formation 'x'": {
        "event": "formation_refused",
        "reason": "no formation 'x'",
    },
}


@pytest.mark.parametrize("words", EVENTS)
def test_what_becomes_of_a_formation_is_one_sentence(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Narrator(None).say("worker-0", EVENTS[words])

    assert capsys.readouterr().err == f"worker-0: {words}\n"


def test_a_model_that_failed_is_said_once_and_what_nobody_wants_to_know_never(
    capsys: pytest.CaptureFixture[str],
) -> None:
    narrator = Narrator("h100")
    narrator.say("gateway-0", {"event": "listening", "door": "openpi", "host": "h", "port": 1})
    capsys.readouterr()
    failed = {"event": "model_failed", "model": "pi0", "reason": "no such file"}
    for process in ("worker-0", "gateway-0"):
        narrator.say(process, failed)
    narrator.say("worker-0", {"event": "listening", "address": "takt-0"})
    narrator.say("worker-0", {"event": "draining", "unfinished": 0})

    said = capsys.readouterr()
    assert said.err == (
        "model pi0 failed to load: no such file (paced h100: launches wait, nothing is computed)\n"
    )
    assert not said.out


class Failing(io.StringIO):
    """An output that takes nothing."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error

    def write(self, s: str) -> int:
        raise self._error


def test_a_full_disk_ends_no_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = Failing(OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(sys, "stdout", full)

    with standard_output_watched():
        say_json(None, "worker-0", {"event": "died", "status": 1})

    assert '"status": 1' in caplog.text
    assert "No space left on device" in caplog.text


def test_a_reader_that_has_gone_is_not_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Failing(BrokenPipeError(errno.EPIPE, "Broken pipe")))

    with pytest.raises(OutputFailedError), standard_output_watched():
        say_json(None, "worker-0", {"event": "died", "status": 1})


def test_json_is_one_line_per_event_and_names_its_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say_choice("flowing")
    say_json("h100", "worker-0", {"event": "died", "status": 1})
    say_json(None, "worker-0", {"event": "died", "status": 1})

    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"event": "formation_chosen", "reason": "flowing"},
        {"event": "died", "status": 1, "process": "worker-0", "paced": "h100"},
        {"event": "died", "status": 1, "process": "worker-0"},
    ]


def test_a_choice_is_announced_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    say_choosing("gpu")

    said = capsys.readouterr()
    assert said.err == "simulating formations for device gpu, a minute at most\n"
    assert said.out == ""


def test_why_a_model_failed_is_not_said_by_a_server_that_never_came_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    narrator = Narrator(None)
    narrator.say("worker-0", {"event": "model_failed", "model": "pi0", "reason": "no such file"})

    assert capsys.readouterr().err == ""

    narrator.say("gateway-0", {"event": "listening", "door": "openpi", "host": "h", "port": 1})

    assert capsys.readouterr().err == (
        "model pi0 failed to load: no such file\nopenpi door at ws://h:1\n"
    )


READY = {"event": "ready", "models": ["mini", "echo"]}


def test_a_gateway_that_is_ready_again_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    narrator = Narrator(None)
    narrator.say("gateway-0", READY)
    narrator.say("gateway-1", READY)
    first = capsys.readouterr().err

    narrator.say("worker-0", READY)
    narrator.say("gateway-0", READY)

    assert [line.partition(" after ")[0] for line in first.splitlines()] == ["ready", "ready"]
    assert capsys.readouterr().err == "gateway-0 is back\n"


def test_a_gateway_says_why_it_drains(capsys: pytest.CaptureFixture[str]) -> None:
    Narrator(None).say("gateway-0", {"event": "draining", "reason": "the server is being stopped"})
    say_stopped()

    assert capsys.readouterr().err == (
        "gateway-0 is draining: the server is being stopped\nstopped\n"
    )


def test_sentences_that_cannot_be_written_are_no_failure() -> None:
    with Path("/dev/full").open("w", encoding="utf-8", buffering=1) as full, redirect_stderr(full):
        Narrator(None).say("gateway-0", READY)
        with open(os.devnull, "wb") as nowhere:  # or closing it would fail
            os.dup2(nowhere.fileno(), full.fileno())
