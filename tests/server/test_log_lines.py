"""A record is one line, whatever it repeats."""

import logging

from hypothesis import given
from hypothesis import strategies as st

from takt.server.log_lines import LogLines, one_line


def written(message: str, *args: object) -> str:
    record = logging.LogRecord("takt.doors", logging.ERROR, "file", 1, message, args, None)
    return LogLines().format(record)


@given(st.text())
def test_whatever_a_name_holds_the_line_is_printable(name: str) -> None:
    assert one_line(name).isprintable()
    assert written("refused: robot=%s", name).isprintable()


@given(st.text().filter(str.isprintable))
def test_printable_text_stays_as_it_is(name: str) -> None:
    assert one_line(name) == name


def test_what_would_forge_a_line_is_escaped() -> None:
    line = written("refused: robot=%s", "arm\n2026 INFO \x1b[2J\x00")

    assert line.endswith("ERROR takt.doors: refused: robot=arm\\n2026 INFO \\x1b[2J\\x00")


def test_a_traceback_follows_on_its_own_lines() -> None:
    error = ValueError("a bug")
    info = (ValueError, error, None)
    record = logging.LogRecord("takt", logging.ERROR, "file", 1, "failed\n", (), info)

    first, *rest = LogLines().format(record).splitlines()

    assert first.endswith("takt: failed\\n")
    assert rest[-1] == "ValueError: a bug"
