"""A file descriptor in reserve, for a listening socket whose process has none left.

A process at its limit cannot accept a connection, not even to close it, and the kernel goes on
saying that one waits: a server that does not see to it spins and fills its log. The reserve is
given up for as long as it takes to turn away what waits.
"""

import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["AcceptReserve"]

log = logging.getLogger(__name__)

_Accepted: TypeAlias = tuple[socket.socket, Any]

_NO_FILES_LEFT = frozenset([errno.EMFILE, errno.ENFILE])


class AcceptReserve:
    """Keeps the descriptor; one per listening socket."""

    def __init__(self) -> None:
        self._spare = _open_spare()
        self._is_short = False

    def accept(self, accept: Callable[[], _Accepted]) -> _Accepted:
        """Call ``accept`` of a listening socket that does not block.

        Raises:
            BlockingIOError: Nobody waits any more, if need be because they were turned away.
            OSError: What else ``accept`` raises.
        """
        try:
            accepted = accept()
        except OSError as error:
            if error.errno not in _NO_FILES_LEFT:
                raise
            self._turn_away(accept)
            raise BlockingIOError("no file descriptor is left") from None
        self._is_short = False
        return accepted

    def close(self) -> None:
        """Give the descriptor back."""
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)

    def _turn_away(self, accept: Callable[[], _Accepted]) -> None:
        if not self._is_short:  # once, however many come
            self._is_short = True
            log.error("connections turned away: no file descriptor is left; see ulimit -n")
        self.close()
        with contextlib.suppress(OSError):  # nobody waits, or another thread took the descriptor
            while True:
                accept()[0].close()
        self._spare = _open_spare()


def _open_spare() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
