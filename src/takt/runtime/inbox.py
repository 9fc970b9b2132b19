"""Where a worker's threads leave what happened, and the loop finds it.

Posting wakes the loop through an eventfd that its selector watches, so nobody polls. What the loop
posts itself wakes nobody: it looks at :attr:`Inbox.is_empty` before it waits.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from typing import Generic, TypeVar

__all__ = ["Inbox"]

T = TypeVar("T")


class Inbox(Generic[T]):
    """A queue that any thread may post to and one takes from: the thread that makes it."""

    def __init__(self) -> None:
        self._taker = threading.get_ident()
        self._posted: deque[T] = deque()
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """Descriptor that is readable once another thread has posted, until acknowledged."""
        return self._fd

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._posted

    def post(self, event: T) -> None:
        """Leave ``event`` for the loop."""
        self._posted.append(event)
        if threading.get_ident() != self._taker:
            os.eventfd_write(self._fd, 1)

    def acknowledge(self) -> None:
        """Let the descriptor be quiet; call it when it is readable, and :meth:`take` after it."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def take(self) -> list[T]:
        """Everything that waits, in the order in which it was posted."""
        taken: list[T] = []
        while self._posted:
            taken.append(self._posted.popleft())
        return taken

    def close(self) -> None:
        """Give back the descriptor; nobody may post any more."""
        os.close(self._fd)
