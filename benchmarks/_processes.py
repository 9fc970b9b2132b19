"""What the kernel says of a process: processor time and memory.

The standard library alone, because peers in environments of their own ask, too.
"""

import os
from pathlib import Path
from typing import Literal

__all__ = ["cpu_s", "memory_kib"]

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Processor time that a process has used so far, its ended children's not included.

    Raises:
        OSError: It has ended.
    """
    # A name may contain blanks and brackets; the fields of proc(5) are counted from behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_kib(kind: Literal["VmRSS", "VmHWM"], pid: int | Literal["self"] = "self") -> int:
    """Memory that a process has now (``VmRSS``), or the most it has had so far (``VmHWM``).

    Not getrusage: its peak is inherited from whoever started this one.

    Raises:
        OSError: It has ended.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind))
