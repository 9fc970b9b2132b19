"""A child reads its configuration and leaves its commands to whoever reads those."""

import os
import sys
from contextlib import redirect_stdout

import pytest

from takt.server import child_process
from takt.server.child_process import announce, first_line


def piped(data: bytes) -> int:
    """What a child finds as its standard input."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading


def test_commands_that_wait_behind_the_configuration_are_left_there() -> None:
    lifeline = piped(b'{"name": "worker-0"}\n{"command": "unload_model"}\n\n')

    assert first_line(lifeline) == b'{"name": "worker-0"}\n'
    assert os.read(lifeline, 100) == b'{"command": "unload_model"}\n\n'
    os.close(lifeline)


def test_a_configuration_that_ends_early_is_handed_on_as_it_is() -> None:
    lifeline = piped(b'{"name":')

    assert first_line(lifeline) == b'{"name":'
    os.close(lifeline)


def test_a_configuration_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "_MAX_CONFIG_BYTES", 10)
    lifeline = piped(b"x" * 50)

    assert first_line(lifeline) == b"x" * 10
    os.close(lifeline)


def test_what_nobody_hears_any_more_is_said_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as unread, redirect_stdout(unread):
        announce({"event": "draining"})
        announce({"event": "stopped"})
        sys.stdout.flush()  # as the interpreter does when it exits

    assert caplog.records == []
