"""Writes what moved a robot, and why, as JSON lines, without ever holding its control loop up.

The loop hands over a record and goes on; a thread writes. Between them is a queue that is bounded:
where the disk does not keep up, records are dropped, and the file itself says how many and where.
Instants are milliseconds since the log was opened, on the monotonic clock; the wall clock is
noted once, in the head.

Start reading at :meth:`EpisodeLog.note`. :mod:`takt.client.episode` reads the file.
"""

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from io import RawIOBase
from pathlib import Path
from typing import Any, TypeAlias

from takt.client.closing import Closing
from takt.errors import ConfigError
from takt.units import Nanos, to_ms

__all__ = ["FORMAT", "EpisodeLog"]

log = logging.getLogger(__name__)

FORMAT = 1
"""Version of the file's format, in its head."""

_Entry: TypeAlias = tuple[Nanos, str, Mapping[str, object]]

_CAPACITY = 4096
_JOIN_TIMEOUT_S = 2.0


class EpisodeLog(Closing):
    """One file of one episode. :meth:`note` may be called from any thread.

    Args:
        path: The file; one that is there is replaced.
        head: What the first line says besides the format: the robot's name, the settings.
        capacity: Most records that wait to be written.
        clock: Monotonic, in nanoseconds.

    Raises:
        ConfigError: The file cannot be opened, or ``capacity`` is below 1.
    """

    def __init__(
        self,
        path: Path,
        *,
        head: Mapping[str, object] | None = None,
        capacity: int = _CAPACITY,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        if capacity < 1:
            raise ConfigError(f"capacity must be at least 1, got {capacity}")
        try:
            # Unbuffered: what a full disk refused must not come up again when the file is closed.
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise ConfigError(f"{path.name}: cannot be written: {error.strerror}") from error
        self._name = path.name
        self._clock = clock
        self._origin = clock()
        self._capacity = capacity
        self._waiting: deque[_Entry] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._closing = False
        self._torn = ""
        self._dropped = self._unreported = 0
        started = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self.note("episode", {"format": FORMAT, "started": started, **(head or {})})
        # A daemon: a program that ends without closing must not hang on a disk that does.
        self._writer = threading.Thread(target=self._write, name="takt-episode-log", daemon=True)
        self._writer.start()

    @property
    def dropped(self) -> int:
        """Records that are not in the file and never will be."""
        return self._dropped

    def note(self, event: str, record: Mapping[str, object], *, at: Nanos | None = None) -> None:
        """Hand a record over. Never waits for the disk and never raises.

        Args:
            event: What happened; ``event`` and ``at_ms`` become the record's first keys.
            record: Anything JSON knows, and NumPy arrays and numbers. It is kept, not copied: do
                not write to it, nor to an array in it, afterwards.
            at: When; now when left out.
        """
        instant = self._clock() if at is None else at
        with self._changed:
            if self._closing:
                self._dropped += 1
            elif len(self._waiting) >= self._capacity:
                self._lose(1)
            else:
                self._waiting.append((instant, event, record))
                self._changed.notify()

    def close(self) -> None:
        """Write what waits and close the file; closing twice does nothing."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._writer.join(_JOIN_TIMEOUT_S)

    def _write(self) -> None:
        with self._file as file:
            while batch := self._next_batch():
                lines = [line for entry in batch if (line := self._line(*entry)) is not None]
                try:
                    _write_all(file, "".join([self._torn, *lines]).encode())
                    self._torn = ""
                except OSError as error:
                    self._could_not_write(len(batch), error.strerror or str(error))

    def _next_batch(self) -> list[_Entry]:
        """Everything that waits, at least one record; empty once the log is closed."""
        with self._changed:
            while not (self._waiting or self._unreported or self._closing):
                self._changed.wait()
            batch = list(self._waiting)
            self._waiting.clear()
            if self._unreported:
                batch.append((self._clock(), "dropped", {"records": self._unreported}))
                self._unreported = 0
            return batch

    def _line(self, instant: Nanos, event: str, record: Mapping[str, object]) -> str | None:
        at_ms = round(to_ms(instant - self._origin), 3)
        line = {"event": event, "at_ms": at_ms, **record}
        try:
            return json.dumps(line, default=_plain, allow_nan=False) + "\n"
        except (TypeError, ValueError) as error:
            log.warning("episode record left out: event=%s reason=%s", event, error)
            with self._changed:
                self._lose(1)
            return None

    def _could_not_write(self, records: int, why: str) -> None:
        """Count what is lost, and try again with the next record: a full disk may be cleared."""
        if not self._torn:  # once per outage, or a full disk fills the terminal, too
            log.error("episode log is incomplete: file=%s reason=%s", self._name, why)
        self._torn = "\n"  # the next record must not continue half a line
        with self._changed:
            self._lose(records)
            while not (self._waiting or self._closing):
                self._changed.wait()
            if self._closing:  # a broken disk must not keep the thread
                self._waiting.clear()
                self._unreported = 0

    def _lose(self, records: int) -> None:
        self._dropped += records
        self._unreported += records


def _write_all(file: RawIOBase, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def _plain(value: Any) -> object:  # noqa: ANN401 - json hands over whatever it does not know
    """NumPy arrays and numbers as lists and numbers."""
    to_list = getattr(value, "tolist", None)
    if to_list is None:
        raise TypeError(f"no JSON for {type(value).__name__}")
    return to_list()
