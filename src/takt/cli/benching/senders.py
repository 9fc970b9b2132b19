"""Directs the processes of a benchmark: starts them together, epoch by epoch.

Robots are divided among processes so that the client is not the bottleneck. All of them are on one
computer, so an instant of its monotonic clock means the same to each.

Start reading at :func:`senders`, then :meth:`Senders.run`.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection
from typing import Any, Protocol

from takt.cli.benching.sender import Broken, Epoch, Link, Progress, Ready, Sent, send
from takt.cli.drive import Drive
from takt.errors import TaktError
from takt.units import MILLISECOND, SECOND, Nanos, to_seconds

__all__ = ["BenchFailedError", "Peer", "Senders", "processes_for", "senders"]

_LEAD: Nanos = 100 * MILLISECOND
"""From telling the processes an instant to that instant."""
_ROBOTS_PER_PROCESS = 16
_SILENCE: Nanos = 120 * SECOND
"""Longest time no process says anything before they are given up."""


class BenchFailedError(TaktError):
    """The robots could not be run."""


class Peer(Link, Protocol):
    """A pipe to a process that sends."""

    def close(self) -> None:
        """Tell it that nobody listens any more."""
        ...


class Senders:
    """The processes that send, seen from the one that directs.

    Args:
        links: A pipe to each.
        wait: Waits until pipes have something to read, or for that many seconds; which.
        clock: Monotonic, in nanoseconds, and the same in all processes.
    """

    def __init__(
        self,
        links: Sequence[Peer],
        *,
        wait: Callable[[Sequence[Any], float], Iterable[Any]] = connection.wait,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        self._links = links
        self._wait = wait
        self._clock = clock

    def run(self, epoch: Epoch, tell: Callable[[Progress], None] = lambda _: None) -> list[Sent]:
        """Run one epoch.

        Args:
            epoch: What to run.
            tell: Told now and then how things stand, over all processes.

        Raises:
            BenchFailedError: A process cannot go on.
        """
        self._order(epoch)
        self._gather(Ready, lambda _: None)
        self._order(self._clock() + _LEAD)
        return self._gather(Sent, tell)

    def _order(self, message: object) -> None:
        for link in self._links:
            # One that has ended has said why, which is read next.
            with suppress(OSError):
                link.send(message)

    def _gather(self, kind: type[Any], tell: Callable[[Progress], None]) -> list[Any]:
        """Wait for a message of this kind from each process."""
        found: dict[int, Any] = {}
        standing: dict[int, Progress] = {}
        while len(found) < len(self._links):
            for link in self._readable():
                place = self._links.index(link)
                message = _received(link)
                if isinstance(message, Broken):
                    raise BenchFailedError(message.why)
                if isinstance(message, kind):
                    found[place] = message
                elif isinstance(message, Progress):
                    standing[place] = message
                    tell(Progress(*map(sum, zip(*standing.values(), strict=True))))
        return [found[place] for place in sorted(found)]

    def _readable(self) -> Iterable[Any]:
        ready = [*self._wait(self._links, to_seconds(_SILENCE))]
        if not ready:
            raise BenchFailedError(
                f"the processes that send said nothing for {to_seconds(_SILENCE):g} s"
            )
        return ready


def processes_for(robots: int) -> int:
    """How many processes send for so many robots: no more than there are cores for us."""
    wanted = -(-robots // _ROBOTS_PER_PROCESS)
    return max(1, min(wanted, len(os.sched_getaffinity(0))))


@contextmanager
def senders(drive: Drive, processes: int) -> Generator[Senders, None, None]:
    """Processes that send as ``drive`` says, until the block ends.

    Args:
        drive: Describes the robots.
        processes: How many processes share them.
    """
    # Spawned ones inherit no end of another one's pipe, so each sees when the director has gone.
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(processes)]
    running = [
        context.Process(target=send, args=(theirs, drive, place, processes), daemon=True)
        for place, (_, theirs) in enumerate(pipes)
    ]
    try:
        for process in running:
            process.start()
        for _, theirs in pipes:
            theirs.close()
        yield Senders([ours for ours, _ in pipes])
    finally:
        for ours, _ in pipes:
            ours.close()
        for process in running:
            _end(process)


def _received(link: Any) -> object:  # noqa: ANN401
    try:
        return link.recv()
    except (EOFError, OSError):
        raise BenchFailedError("a process that sends has ended") from None


def _end(process: Any) -> None:  # noqa: ANN401
    if process.pid is not None:
        process.kill()  # it hears nothing gentler, and has nothing to keep
        process.join()
