"""Shared memory for observations: the gateway writes, workers read and cannot write.

The arena is an anonymous memory file (memfd). It has no name, so nothing is left behind after
any kill: the kernel frees it when the last process that maps it is gone. The gateway maps it
writable, then seals it: no later mapping may be writable, in any process, and its size is fixed,
so a reader can't be hit by a file cut under its feet. Pages are reserved at creation, so a lack
of memory shows when the gateway starts and not in the middle of a request.

Linux only. Start reading at :meth:`Arena.create` and :meth:`ArenaView.map`.
"""

import fcntl
import mmap
import os
from dataclasses import dataclass

from takt.errors import ConfigError, UsageError, WireError

__all__ = ["Arena", "ArenaGeometry", "ArenaView"]

_SEAL_FUTURE_WRITE = 0x0010
"""F_SEAL_FUTURE_WRITE of linux/fcntl.h (Linux 5.1), which Python does not name yet."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
# Populate: the first request of a slot shall not pay a page fault per 4 KiB.
_MAP_FLAGS = mmap.MAP_SHARED | mmap.MAP_POPULATE


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaGeometry:
    """Number and size of an arena's slots."""

    num_slots: int
    """Observations that can be under way at once."""
    slot_bytes: int
    """Bytes of a slot: the largest layout of any model; a multiple of 64."""
    max_bytes: int = 4 * 1024**3
    """Most memory the arena may take; larger is refused before anything is reserved."""

    def __post_init__(self) -> None:
        if self.num_slots < 1 or self.slot_bytes < 1 or self.slot_bytes % 64:
            raise ConfigError(
                "arena: expected num_slots of at least 1 and slot_bytes a positive multiple of "
                f"64, got {self.num_slots} and {self.slot_bytes}"
            )
        if self.nbytes > self.max_bytes:
            raise ConfigError(
                f"arena: {self.num_slots} slots of {self.slot_bytes} bytes are {self.nbytes} "
                f"bytes, the limit is {self.max_bytes}"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of the whole arena."""
        return self.num_slots * self.slot_bytes


def _available_bytes() -> int:
    """Memory that can be taken without swapping, by the kernel's estimate."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAv"))


class _Mapping:
    """Slots of a mapped arena."""

    def __init__(self, fd: int, geometry: ArenaGeometry, protection: int) -> None:
        self.geometry = geometry
        self._map = mmap.mmap(fd, geometry.nbytes, flags=_MAP_FLAGS, prot=protection)
        self._bytes = memoryview(self._map)

    def slot(self, number: int) -> memoryview:
        """The bytes of one slot.

        Raises:
            UsageError: The arena has no such slot.
        """
        if not 0 <= number < self.geometry.num_slots:
            raise UsageError(f"slot {number}: the arena has {self.geometry.num_slots}")
        start = number * self.geometry.slot_bytes
        return self._bytes[start : start + self.geometry.slot_bytes]

    def close(self) -> None:
        """Let go of the memory; views on slots keep it until they are gone themselves."""
        del self._bytes
        del self._map


class Arena(_Mapping):
    """The gateway's side: writable, and the owner of the file descriptor to hand over."""

    def __init__(self, fd: int, geometry: ArenaGeometry) -> None:
        super().__init__(fd, geometry, mmap.PROT_READ | mmap.PROT_WRITE)
        self.fd = fd
        """Descriptor of the memory file; handed to workers, closed by :meth:`close`."""

    @classmethod
    def create(cls, geometry: ArenaGeometry, *, available_bytes: int | None = None) -> "Arena":
        """Reserve the memory, map it and seal it.

        Args:
            geometry: Number and size of the slots.
            available_bytes: Memory the arena may take; by default what the machine has left.

        Raises:
            ConfigError: That is not enough.
        """
        available = _available_bytes() if available_bytes is None else available_bytes
        if geometry.nbytes > available:
            # Not left to the kernel: reserving would kill other processes before it fails.
            raise ConfigError(
                f"arena: {geometry.nbytes} bytes of shared memory wanted, {available} available"
            )
        fd = os.memfd_create("takt-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(fd, 0, geometry.nbytes)
            arena = cls(fd, geometry)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        except OSError as error:
            os.close(fd)
            raise ConfigError(
                f"arena: cannot reserve {geometry.nbytes} bytes of shared memory: {error.strerror}"
            ) from error
        return arena

    def close(self) -> None:
        """Let go of memory and descriptor; workers that map the arena keep it."""
        super().close()
        os.close(self.fd)


class ArenaView(_Mapping):
    """A worker's side: read-only, by the kernel's word."""

    @classmethod
    def map(cls, fd: int, geometry: ArenaGeometry) -> "ArenaView":
        """Map an arena that a gateway handed over. The caller may close ``fd`` afterwards.

        Raises:
            WireError: The file is not sealed as an arena is, or has another size.
        """
        try:
            seals, size = fcntl.fcntl(fd, fcntl.F_GET_SEALS), os.fstat(fd).st_size
        except OSError as error:
            raise WireError(f"arena: not a memory file: {error.strerror}") from error
        if seals & _SEALS != _SEALS or size != geometry.nbytes:
            raise WireError(
                f"arena: expected seals {_SEALS:#x} and {geometry.nbytes} bytes, got {seals:#x} "
                f"and {size}"
            )
        try:
            return cls(fd, geometry, mmap.PROT_READ)
        except OSError as error:
            raise WireError(f"arena: cannot map {size} bytes: {error.strerror}") from error
