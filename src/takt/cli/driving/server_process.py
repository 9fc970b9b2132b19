"""A server of one's own: `takt serve` as a child process, stopped whatever happens.

The child says on its standard output, one JSON object a line, what becomes of it; its log is kept
and shown only when it fails. It is in a process group of its own, so that Ctrl-C reaches the
command and not the server below it, and it is told to stop if the command dies.

Start reading at :func:`serving`.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import IO, Any, cast

from takt.errors import TaktError
from takt.units import Nanos, to_seconds

__all__ = ["ServerFailedError", "ServerProcess", "serving"]

_STOP_TIMEOUT_S = 15.0
_KEPT_LINES = 20
_PR_SET_PDEATHSIG = 1
"""Number of the request in ``linux/prctl.h``."""


class ServerFailedError(TaktError):
    """The server did not come up."""


class ServerProcess:
    """A server that runs; made by :func:`serving`.

    Args:
        process: The child, its standard output and error being pipes.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(self, process: subprocess.Popen[str], clock: Callable[[], Nanos]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.events: list[Mapping[str, Any]] = []
        """What it has said so far, in order."""
        self._process = process
        self._clock = clock
        self._said: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._log: deque[str] = deque(maxlen=_KEPT_LINES)
        self._readers = [
            threading.Thread(target=self._read_events, args=(process.stdout,), daemon=True),
            threading.Thread(target=self._log.extend, args=(process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def wait_until_ready(self, timeout: Nanos) -> str:
        """Wait until its models are ready and its openpi door listens.

        Returns:
            The door's ``host:port``.

        Raises:
            ServerFailedError: It ended, a model failed to load, or ``timeout`` has passed.
        """
        give_up = self._clock() + timeout
        address, is_ready = None, False
        events = self._events(give_up)
        while address is None or not is_ready:
            event = next(events)
            kind = event.get("event")
            if kind == "model_failed":
                raise ServerFailedError(
                    f"model {event.get('model')} failed to load: {event.get('reason')}"
                )
            if kind == "listening" and event.get("door") == "openpi":
                address = f"{event['host']}:{event['port']}"
            # A worker says so of itself before; robots are served when the gateway does.
            is_ready |= kind == "ready" and isinstance(event.get("models"), list)
        return address

    def wait_for_door(self, door: str, timeout: Nanos) -> str:
        """Wait until a door listens; one other than openpi's may do so after the server is ready.

        Args:
            door: ``openpi`` or ``lerobot``.
            timeout: From now on.

        Returns:
            The door's ``host:port``.

        Raises:
            ServerFailedError: It ended, or ``timeout`` has passed.
        """
        return next(
            f"{event['host']}:{event['port']}"
            for event in self._events(self._clock() + timeout)
            if event.get("event") == "listening" and event.get("door") == door
        )

    def stop(self) -> None:
        """Let it drain and end; end it by force if it does not."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for reader in self._readers:
            reader.join(_STOP_TIMEOUT_S)

    def _events(self, give_up: Nanos) -> Iterator[Mapping[str, Any]]:
        """All it has said, then what it says until ``give_up``."""
        for place in itertools.count():
            while place == len(self.events):
                self._wait_for_news(give_up)
            yield self.events[place]

    def _wait_for_news(self, give_up: Nanos) -> None:
        try:
            event = self._said.get(timeout=max(0.0, to_seconds(give_up - self._clock())))
        except queue.Empty:
            raise ServerFailedError(
                "the server was not ready in time" + self._last_words()
            ) from None
        if event is None:
            self._said.put(None)  # nothing more comes, for whoever waits next
            self._process.wait()
            self._readers[1].join(_STOP_TIMEOUT_S)
            raise ServerFailedError(
                f"the server ended with status {self._process.returncode}" + self._last_words()
            )

    def _last_words(self) -> str:
        return "".join(f"\n  {line.rstrip()}" for line in self._log)

    def _read_events(self, lines: IO[str]) -> None:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                self.events.append(cast("dict[str, Any]", event))
                self._said.put(cast("dict[str, Any]", event))
        self._said.put(None)


@contextlib.contextmanager
def serving(
    options: Sequence[str],
    *,
    command: Sequence[str] = (sys.executable, "-m", "takt.cli.main", "serve", "--json"),
    clock: Callable[[], Nanos] = time.monotonic_ns,
) -> Generator[ServerProcess, None, None]:
    """Run a server while the context lasts.

    Args:
        options: Of ``takt serve``.
        command: What to run with them.
        clock: Monotonic, in nanoseconds.
    """
    # The thread that starts the child must outlive it: the kernel watches that thread.
    process = subprocess.Popen(
        [*command, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
        preexec_fn=_stop_when_the_parent_dies,
    )
    with process:
        server = ServerProcess(process, clock)
        try:
            yield server
        finally:
            server.stop()


def _stop_when_the_parent_dies() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
