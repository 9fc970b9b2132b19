"""Remembers what sessions are known by, over lost connections and restarts of the server.

Records in use belong to a connection; the others are candidates for robots that come back without
a handshake, for some minutes. With a directory they are kept in one small file there, which is
replaced as a whole: a reader finds the old content or the new, never half of one.

Start reading at :meth:`SessionRecords.candidates`.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from takt.errors import ConfigError, LimitError
from takt.files import replacing
from takt.session.resuming import SessionRecord
from takt.units import SECOND, Nanos
from takt.wire.lerobot_objects import Spelling

__all__ = ["SessionRecords", "check_size"]

log = logging.getLogger(__name__)

_FILE = "lerobot-sessions.json"
_SPELLINGS = frozenset(spelling.value for spelling in Spelling)
_MAX_RECORDS = 4096
_MAX_RECORD_BYTES = 16 << 10
"""A hundred joints and a dozen cameras need a third of it."""
_MAX_BYTES = 2 * _MAX_RECORDS * _MAX_RECORD_BYTES
"""Of the file, keys included: more than is ever written."""
_KEPT: Nanos = 600 * SECOND
"""How long a session that has ended may be gone on with."""


class SessionRecords:
    """The records of one door.

    Args:
        directory: Where they are kept; None: in memory.
        now: The beginning of this life of the server: what was in use when the last one ended can
            be gone on with from here.

    Raises:
        ConfigError: The directory cannot be used, or its file holds something else.
    """

    def __init__(self, directory: Path | None, now: Nanos) -> None:
        self.is_dirty = False
        """Whether the file is older than what is in memory."""
        self._path = None if directory is None else _prepared(directory) / _FILE
        self._writing = threading.Lock()
        self._records: dict[str, SessionRecord] = {}
        self._ended: dict[str, Nanos] = {}
        """When each record that is not in use came out of use."""
        if self._path is not None and self._path.exists():
            self._records = _read(self._path)
            self._ended = dict.fromkeys(self._records, now)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def is_kept(self) -> bool:
        """Whether there is a file."""
        return self._path is not None

    def open(self, record: SessionRecord) -> str:
        """A session has begun; the key of its record."""
        if len(self._records) >= _MAX_RECORDS and self._ended:
            self._drop(next(iter(self._ended)))
        key = secrets.token_hex(8)
        self._records[key] = record
        self.is_dirty = True
        return key

    def reached(self, key: str, timestep: int) -> None:
        """The robot of a session has come so far."""
        record = self._records.get(key)
        if record is not None and timestep > record.last_timestep:
            self._records[key] = dataclasses.replace(record, last_timestep=timestep)
            self.is_dirty = True

    def end(self, key: str, now: Nanos) -> None:
        """A session has lost its connection; its robot may come back."""
        if key in self._records:
            self._ended.setdefault(key, now)

    def use(self, key: str) -> None:
        """A session whose connection seemed lost is in use after all."""
        self._ended.pop(key, None)

    def forget(self, key: str) -> None:
        """A session is over for good, or another has taken its place."""
        self._drop(key)

    def candidates(self, now: Nanos) -> Mapping[str, SessionRecord]:
        """Records that no connection uses, oldest first."""
        for key in [key for key, ended in self._ended.items() if now - ended > _KEPT]:
            self._drop(key)
        return {key: record for key, record in self._records.items() if key in self._ended}

    def save(self) -> None:
        """Bring the file up to date; a fault is logged, since robots are served all the same."""
        if self._path is None or not self.is_dirty:
            return
        self.is_dirty = False
        self.write(self.content())

    def content(self) -> bytes:
        """What the file should hold."""
        return msgspec.json.encode(self._records)

    def write(self, content: bytes) -> None:
        """Replace the file; may be called on another thread."""
        if self._path is None:
            return
        # The last save of a server that is stopped may meet one that is still on its way.
        with self._writing:
            _replace(self._path, content)

    def _drop(self, key: str) -> None:
        self._ended.pop(key, None)
        if self._records.pop(key, None) is not None:
            self.is_dirty = True


def check_size(record: SessionRecord) -> None:
    """Refuse a robot whose names are so long that few could be remembered.

    Raises:
        LimitError: They are.
    """
    size = len(msgspec.json.encode(record))
    if size > _MAX_RECORD_BYTES:
        raise LimitError(
            f"lerobot_features: expected names of at most {_MAX_RECORD_BYTES} bytes together,"
            f" got {size}"
        )


def _replace(path: Path, content: bytes) -> None:
    try:
        with replacing(path) as fresh:
            fresh.write_bytes(content)
    except OSError as error:
        log.warning("sessions not saved: reason=%s", error.strerror)


def _prepared(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--state-dir {directory}: {error.strerror}") from None
    if not os.access(directory, os.W_OK):
        raise ConfigError(f"--state-dir {directory}: cannot be written to")
    return directory


def _read(path: Path) -> dict[str, SessionRecord]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path}: expected at most {_MAX_BYTES} bytes")
        records = msgspec.json.decode(path.read_bytes(), type=dict[str, SessionRecord])
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: holds no sessions ({error}); move it away") from None
    for key, record in records.items():
        fault = _fault(record)
        if fault is not None:
            raise ConfigError(f"{path}: holds no sessions ({key!a}: {fault}); move it away")
    return records


def _fault(record: SessionRecord) -> str | None:
    """Why no handshake begins such a session; None if one might."""
    if record.actions_per_chunk < 1:
        return f"expected actions_per_chunk of 1 or more, got {record.actions_per_chunk}"
    if record.spelling not in _SPELLINGS:
        known = " or ".join(sorted(_SPELLINGS))
        return f"expected spelling {known}, got {record.spelling!a}"
    return None
