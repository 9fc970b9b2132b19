"""Log lines that hold one record each, whoever wrote what they repeat.

A name that a client or an operator chose may hold a line feed or an escape sequence. Written as it
is, it would forge a line or play with a terminal.
"""

from __future__ import annotations

import logging

__all__ = ["LogLines", "one_line"]


class LogLines(logging.Formatter):
    """Writes the message of a record on one printable line; a traceback follows on its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """See :meth:`logging.Formatter.formatMessage`."""
        return one_line(super().formatMessage(record))


def one_line(text: str) -> str:
    """``text`` with everything that is not printable escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
