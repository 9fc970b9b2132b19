"""A full disk, without one: no file of this process may grow beyond a few bytes."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["FULL", "full_disk"]

FULL = "File too large"
"""What the system says where a full disk says "No space left on device"."""


@contextmanager
def full_disk(most_bytes: int = 64) -> Iterator[None]:
    """Have writing fail after so many bytes; what is printed must not go to a file meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
