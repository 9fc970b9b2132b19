"""Freed memory is kept: frame after frame in the same pages."""

from __future__ import annotations

import subprocess
import sys

import pytest

from takt.heap import keep_freed_memory

FRAME = 1_600_000
AT_ONCE = 4
"""Frames under way; of one alone glibc itself keeps the pages."""
NUM_ROUNDS = 25
PAGES = FRAME // 4096 * AT_ONCE * NUM_ROUNDS
"""Pages of all frames."""
PACK = f"""
import resource
from takt.heap import keep_freed_memory

def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

{{prepare}}
image = bytearray({FRAME})
[bytes(image) for _ in range({AT_ONCE})]
before = page_faults()
for _ in range({NUM_ROUNDS}):
    [bytes(image) for _ in range({AT_ONCE})]
print(page_faults() - before)
"""


def page_faults(prepare: str) -> int:
    """Of a process that packs frames."""
    program = PACK.format(prepare=prepare)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
def test_a_process_that_keeps_memory_has_no_page_cleared_for_frame_after_frame() -> None:
    assert page_faults("") > PAGES / 2
    assert page_faults("keep_freed_memory()") < PAGES / 50


def test_a_c_library_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())

    assert not keep_freed_memory()
