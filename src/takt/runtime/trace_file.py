"""A trace on disk: one file that holds one trace per setup of the scheduler.

Lines are written at once, so a worker that is killed leaves a trace that replays up to its last
instant. Robots come first: when the disk is full the trace ends there, and serving goes on.

The file belongs to one server: :func:`begin_trace` keeps it for as long as the server or one of its
workers lives, however often the workers are started again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from takt.errors import ConfigError

__all__ = ["TraceFile", "begin_trace", "split_traces"]

log = logging.getLogger(__name__)

_BLOCK = 1 << 16
_SETUP = '{"takt_trace":'


def begin_trace(path: str) -> int:
    """Begin a trace: keep other servers from its file, and empty it.

    Returns:
        A descriptor. The file is kept until it is closed here and in every process that has
        inherited it.

    Raises:
        ConfigError: It cannot be written, or another server keeps it; the message names a process
            of that server where this user may see it.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):  # what has no content may be shared
                _keep(fd, path)
                os.ftruncate(fd, 0)
        except BaseException:
            os.close(fd)
            raise
    except BlockingIOError:
        raise ConfigError(
            f"{path}: another server{_writer(path)} still writes it; one that was stopped does so"
            " for some seconds: try again, or give another file"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    return fd


def _keep(fd: int, path: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:  # a file system without locks
        log.warning("the trace cannot be kept: path=%s reason=%s", path, error.strerror)


def _writer(path: str) -> str:
    """The first process that has a file open for writing, in words; "" where none can be seen."""
    with suppress(OSError):
        file = os.stat(path)
        for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
            if pid != os.getpid() and _writes(pid, file):
                return f" (process {pid})"
    return ""


def _writes(pid: int, file: os.stat_result) -> bool:
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):  # it is another user's, or has ended meanwhile
        for name in os.listdir(folder):
            opened = f"{folder}/{name}"
            # The link's own permissions say what the file was opened for: proc(5).
            may_write = os.lstat(opened).st_mode & stat.S_IWUSR
            if may_write and os.path.samestat(os.stat(opened), file):
                return True
    return False


class TraceFile:
    """Receives the lines of a :class:`~takt.runtime.loop.WorkerLoop`.

    Args:
        path: Where it is written; lines are added to a file that is there.

    Raises:
        ConfigError: It cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._has_ended = False
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o644)
            _drop_cut_line(self._fd)
        except OSError as error:
            raise ConfigError(f"trace_path {path!r}: {error.strerror}") from error

    def __call__(self, lines: Sequence[str]) -> None:
        """Write the lines of one step; after a first failure, none any more."""
        if self._has_ended:
            return
        unwritten = memoryview("".join([f"{line}\n" for line in lines]).encode())
        try:
            while unwritten:
                unwritten = unwritten[os.write(self._fd, unwritten) :]
        except OSError as error:
            # A gap would make what follows replay differently: the trace is over.
            self._has_ended = True
            log.error("the trace has ended: path=%s reason=%s", self._path, error.strerror)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _drop_cut_line(fd: int) -> None:
    """Cut off a last line that a kill left unfinished, so that the next trace begins a line."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return
    end = size = os.lseek(fd, 0, os.SEEK_END)
    while end > 0:
        start = max(end - _BLOCK, 0)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(fd, end)


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
