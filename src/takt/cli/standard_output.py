"""Standard output that can fail: its reader may go, its disk may be full.

Whichever write comes next then fails, deep inside a command, where it would pass for a failure of
what the command is about: of a socket, a child process, a file. And rich ends the program by itself
when the reader has gone, with a status of its own. So while a command runs, what goes wrong with
standard output is an exception that nobody else raises or expects.

Start reading at :func:`standard_output_watched`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from typing import Any, TextIO, cast

__all__ = ["OutputFailedError", "standard_output_watched"]


class OutputFailedError(Exception):
    """Nothing more can be written to standard output.

    Neither an :class:`OSError` nor a :class:`~takt.errors.TaktError`: a command that expects one of
    them means other things.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror or error}")
        self.reader_has_gone = isinstance(error, BrokenPipeError)
        """Whether it was a pipe, at whose other end nobody reads."""


@contextlib.contextmanager
def standard_output_watched() -> Generator[None, None, None]:
    """A context in which a failure of standard output is told apart; at its end all is written.

    Raises:
        OutputFailedError: Something could not be written.
    """
    watched = _Watched(sys.stdout)
    with contextlib.redirect_stdout(cast("TextIO", watched)):
        try:
            yield
        finally:
            watched.flush()


class _Watched:
    """A stream like the given one, but for how it fails."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _told_apart():
            return self._stream.write(text)

    def flush(self) -> None:
        with _told_apart():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._stream, name)


@contextlib.contextmanager
def _told_apart() -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise OutputFailedError(error) from error
