"""Where a worker's threads leave what happened, and the loop finds it.

Posting wakes the loop through an eventfd that its selector watches, so nobody polls.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Generic, TypeVar

__all__ = ["Inbox"]

T = TypeVar("T")


class Inbox(Generic[T]):
    """A queue that any thread may post to and one thread takes from."""

    def __init__(self) -> None:
        self._posted: deque[T] = deque()
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """Descriptor that is readable while something waits."""
        return self._fd

    def post(self, event: T) -> None:
        """Leave ``event`` for the loop."""
        self._posted.append(event)
        os.eventfd_write(self._fd, 1)

    def take(self) -> list[T]:
        """Everything that waits, in the order in which it was posted."""
        try:
            # Before the queue is read: what is posted from here on wakes the loop again.
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return []
        taken: list[T] = []
        while self._posted:
            taken.append(self._posted.popleft())
        return taken

    def close(self) -> None:
        """Give back the descriptor; nobody may post any more."""
        os.close(self._fd)
