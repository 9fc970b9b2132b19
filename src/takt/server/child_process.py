"""What every child of the supervisor does alike: how it is told, and how it tells.

The first line of standard input is the child's configuration. Standard input then stays open as a
lifeline: what follows are commands (:mod:`takt.server.commands`), and when it ends, the supervisor
has died. Every change of the child's state is a line of JSON on standard output; its log goes to
standard error.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import sys
from collections.abc import Mapping

from takt.errors import ConfigError
from takt.server.log_lines import LogLines

__all__ = ["allow_many_files", "announce", "announce_failure", "begin_log", "first_line"]

_MAX_CONFIG_BYTES = 1 << 20
_MOST_FILES = 1 << 16


def begin_log() -> None:
    """Log to standard error, as much as ``TAKT_LOG_LEVEL`` says."""
    level = os.environ.get("TAKT_LOG_LEVEL", "INFO")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines())
    logging.basicConfig(level=level, handlers=[handler])


def allow_many_files() -> None:
    """Let this process have as many connections as its user is allowed, up to a sane number."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if most == resource.RLIM_INFINITY else min(most, _MOST_FILES)
    if allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def first_line(lifeline: int) -> bytes:
    """Read the configuration, and nothing of the commands that may be waiting behind it.

    Returns:
        The line; what there is of it when the input ends or it is too long.
    """
    line = bytearray()
    # One by one: what a pipe has given cannot be put back, and whoever reads commands needs it.
    while not line.endswith(b"\n") and len(line) < _MAX_CONFIG_BYTES:
        byte = os.read(lifeline, 1)
        if not byte:
            break
        line += byte
    return bytes(line)


def announce_failure(error: ConfigError) -> None:
    """Tell the supervisor, and through it the operator, why this process cannot serve."""
    announce({"event": "failed", "reason": str(error)})


def announce(event: Mapping[str, object]) -> None:
    """Tell the supervisor of a change, if it is there to hear."""
    try:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
    except OSError:
        # The supervisor is gone; the end of the lifeline says so too, and what to do about it. What
        # is still buffered, and whatever follows, goes nowhere.
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
