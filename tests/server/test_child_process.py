"""A child reads its configuration and leaves its commands to whoever reads those."""

import os

import pytest

from takt.server import child_process
from takt.server.child_process import first_line


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
