"""Entry point of a worker process: ``python -m takt.server.worker_process``.

Its configuration is the first line of its standard input, which then stays open as a lifeline:
further lines are commands (:mod:`takt.server.commands`), and when it ends, the supervisor has died,
and the worker drains and exits, as it does on SIGTERM. Every change of its state is a line of JSON
on standard output; its log goes to standard error.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from types import FrameType

from takt.errors import ConfigError
from takt.heap import keep_freed_memory
from takt.runtime.config import WorkerConfig
from takt.runtime.inbox import Inbox
from takt.runtime.worker import run_worker
from takt.schema.commands import Command
from takt.server.child_process import (
    allow_many_files,
    announce,
    announce_failure,
    begin_log,
    first_line,
)
from takt.server.commands import CommandLines

__all__ = ["main"]


def main() -> None:
    """Run a worker; ends the process."""
    begin_log()
    allow_many_files()
    keep_freed_memory()
    status = 0
    try:
        _serve(sys.stdin.fileno())
    except ConfigError as error:
        announce_failure(error)
        status = 1
    logging.shutdown()
    sys.stdout.flush()
    # Threads may still be inside an engine, which is not made for an interpreter that winds down.
    # Nothing is lost: the kernel takes back memory and sockets.
    os._exit(status)


def _serve(lifeline: int) -> None:
    config = WorkerConfig.from_json(first_line(lifeline))
    stop = os.eventfd(0, os.EFD_CLOEXEC)

    def stop_serving(number: int, frame: FrameType | None) -> None:
        del number, frame
        os.eventfd_write(stop, 1)

    signal.signal(signal.SIGTERM, stop_serving)
    # A Ctrl-C at the terminal reaches the whole group; the supervisor decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    commands: Inbox[Command] = Inbox()
    hold = (lifeline, commands, stop)
    threading.Thread(target=_hold, args=hold, name="lifeline", daemon=True).start()
    listening = _inherited(config.listening_fd)
    run_worker(config, listening, stop, commands=commands, announce=announce)


def _hold(lifeline: int, commands: Inbox[Command], stop: int) -> None:
    """Hand over what the supervisor asks for, until its end."""
    lines = CommandLines()
    while data := os.read(lifeline, 1 << 16):
        for command in lines.feed(data):
            commands.post(command)
    os.eventfd_write(stop, 1)


def _inherited(fd: int | None) -> socket.socket | None:
    if fd is None:
        return None
    try:
        listening = socket.socket(fileno=fd)
    except OSError as error:
        raise ConfigError(f"listening_fd {fd}: {error.strerror}") from error
    listening.set_inheritable(False)
    return listening


if __name__ == "__main__":
    main()
