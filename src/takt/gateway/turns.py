"""Whose row is prepared next, so that a robot with costly images does not delay the others.

Decoding a file of a few kilobytes can take a third of a second, a camera image usually a few
milliseconds. Rows therefore do not queue in the order in which they came: each robot has a line of
its own, at most one of its rows is being prepared, and the next is of the robot that has had the
least, counted in bytes (self-clocked fair queueing).

Start reading at :meth:`Turns.take`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["Turns"]

T = TypeVar("T")


@dataclass(slots=True)
class _Line(Generic[T]):
    """The rows of one robot that wait, oldest first, each with what had been spent at its end."""

    rows: deque[tuple[int, T]] = field(default_factory=deque[tuple[int, T]])
    end: int = 0
    is_under_way: bool = False


class Turns(Generic[T]):
    """Rows that wait to be prepared."""

    def __init__(self) -> None:
        self._lines: dict[int, _Line[T]] = {}
        self._spent = 0
        """What a robot that comes now counts as having had."""

    def add(self, robot: int, cost: int, row: T) -> None:
        """A row waits.

        Args:
            robot: Whose; any number that no other robot has.
            cost: What preparing it takes, in any unit.
            row: What :meth:`take` returns.
        """
        line = self._lines.setdefault(robot, _Line())
        line.end = max(line.end, self._spent) + cost
        line.rows.append((line.end, row))

    def take(self) -> T | None:
        """The row whose turn it is; :meth:`done` must follow. None if nobody's is."""
        ready = [line for line in self._lines.values() if line.rows and not line.is_under_way]
        if not ready:
            return None
        line = min(ready, key=lambda line: line.rows[0][0])
        end, row = line.rows.popleft()
        self._spent = max(self._spent, end)
        line.is_under_way = True
        return row

    def done(self, robot: int) -> None:
        """The row of this robot that was taken is prepared."""
        line = self._lines[robot]
        line.is_under_way = False
        if not line.rows:
            del self._lines[robot]
