"""Keeps freed memory for the next camera frame, so that no frame pays for fresh pages.

The C library's allocator gives every block of more than 128 KiB pages of its own, and gives them
back when the block is freed. A process that packs or reads a frame of a megabyte, over and over,
has the kernel clear hundreds of pages for each: on a virtual machine this took as long as all
copying together. Every process of Takt that handles frames calls :func:`keep_freed_memory` once,
before it starts; a library must not decide this for its host, so :mod:`takt.client` does not.
"""

from __future__ import annotations

import ctypes

__all__ = ["keep_freed_memory"]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Names of ``mallopt(3)``."""
_LARGEST_FRAME = 32 << 20
"""Blocks up to this size are kept; it is the most that glibc accepts."""
_MOST_KEPT = 64 << 20
"""Memory at the end of the heap that is not given back, twice the largest block."""


def keep_freed_memory() -> bool:
    """Let this process keep up to 64 MiB that it has freed.

    Returns:
        Whether it does; False where the C library is not glibc, which leaves all as it was.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl has none; Windows cannot open itself
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_FRAME) and mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)
    )
