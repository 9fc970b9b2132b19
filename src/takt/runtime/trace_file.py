"""A trace on disk: one file that holds one trace per setup of the scheduler.

Lines are written at once, so a worker that is killed leaves a trace that replays up to its last
instant.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from takt.errors import ConfigError

__all__ = ["TraceFile", "split_traces"]

_SETUP = '{"takt_trace":'


class TraceFile:
    """Receives the lines of a :class:`~takt.runtime.loop.WorkerLoop`.

    Args:
        path: Where it is written; an existing file is replaced.

    Raises:
        ConfigError: It cannot be written.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o644)
        except OSError as error:
            raise ConfigError(f"trace_path {path!r}: {error.strerror}") from error

    def __call__(self, lines: Sequence[str]) -> None:
        """Write the lines of one step."""
        unwritten = memoryview("".join([f"{line}\n" for line in lines]).encode())
        while unwritten:
            unwritten = unwritten[os.write(self._fd, unwritten) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def split_traces(lines: Iterable[str]) -> Iterator[list[str]]:
    """The traces of a file, each ready for :func:`takt.core.trace.replay`.

    A last line that was cut off by a kill is left out.
    """
    trace: list[str] = []
    for line in lines:
        if line.startswith(_SETUP) and trace:
            yield trace
            trace = []
        if line.endswith("\n"):
            trace.append(line[:-1])
    if trace:
        yield trace
