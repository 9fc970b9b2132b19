"""What the tests of the client share beside their doubles."""

import threading
from collections.abc import Iterator

import pytest

PATIENCE_S = 20.0


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    before = threading.enumerate()
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:  # one that has been told to end may still be about to
        thread.join(PATIENCE_S)
    assert [thread for thread in left if thread.is_alive()] == []
