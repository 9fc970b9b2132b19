"""Commands come in pieces, in bursts, and sometimes as nonsense."""

import itertools
import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.schema.commands import AskLife, CountRobots, DriveIn, LoadModel, UnloadModel
from takt.schema.serving import ServedModel
from takt.server.commands import (
    CommandLines,
    count_line,
    drive_line,
    load_line,
    unload_line,
)

MODEL = ServedModel(name="v2", policy="echo", options={"latency_ms": 3.0}, slo_ms=50.0)
FLOWING = DriveIn(formation="flowing", options={"gathering": 4}, prefix_limit=2, denoise_limit=None)
SAID = (load_line(MODEL), unload_line("v1"), count_line(7), drive_line(asdict(FLOWING)))
LINES = b"".join(json.dumps(line).encode() + b"\n" for line in SAID)


@given(cuts=st.lists(st.integers(0, len(LINES) + 1), max_size=6).map(sorted))
def test_commands_come_out_as_they_went_in_however_they_are_cut(cuts: list[int]) -> None:
    stream = LINES + b"\n"
    lines = CommandLines()
    edges = [0, *cuts, len(stream)]

    heard = [
        command
        for start, end in itertools.pairwise(edges)
        for command in lines.feed(stream[start:end])
    ]

    assert heard == [LoadModel(MODEL), UnloadModel("v1"), CountRobots(7), FLOWING, AskLife()]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"7",
        b'{"command": "format_disk"}',
        b'{"command": "load_model", "model": {"name": ""}}',
        b'{"command": "load_model", "model": {"name": "", "policy": "echo"}}',
        b'{"command": "unload_model", "name": "a", "force": true}',
        b"\xff\xfe",
        b'{"command": "count_robots", "lately": 0}',
        b'{"command": "drive_in", "formation": "flowing"}',
    ],
)
def test_a_line_that_is_no_command_is_dropped_and_the_next_is_read(
    line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert CommandLines().feed(line + b"\n\n") == [AskLife()]
    assert "not a command" in caplog.text


def test_a_line_without_an_end_does_not_take_all_memory() -> None:
    lines = CommandLines()
    for _ in range(40):
        lines.feed(b"x" * 65_536)

    assert len(lines._rest) <= 1 << 20
