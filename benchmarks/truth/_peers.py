"""Processes of other interpreters that say lines: stock servers, and the clients made for them."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Sequence
from pathlib import Path

import takt

__all__ = ["Peer", "PeerGoneError"]

_SOURCE = Path(takt.__file__).parents[1]


class PeerGoneError(Exception):
    """A process of a stock server, or of its clients, has ended or says nothing."""


class Peer:
    """A process of another interpreter that says lines.

    Args:
        command: What to run; ``takt`` can be imported there.
        folder: Its working directory.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(_SOURCE), "OMP_NUM_THREADS": "1"},
        )

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def ask(self, line: str) -> None:
        """Write a line to it.

        Raises:
            PeerGoneError: It has ended.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise PeerGoneError("it has ended") from error

    def hear(self, timeout_s: float) -> str:
        """The next line it says.

        Raises:
            PeerGoneError: It has ended, or says nothing in that time.
        """
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.process.stdout, selectors.EVENT_READ)
            if not waiting.select(timeout_s):
                raise PeerGoneError(f"it said nothing for {timeout_s:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise PeerGoneError("it has ended")
        return line.decode().strip()

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()
