"""``takt replay``: run a recorded trace through the scheduler again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import tyro

from takt.core.trace import replay
from takt.errors import UsageError

__all__ = ["Replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Check that the scheduler decides again as it did when a trace was recorded.

    Traces come from 'takt serve --trace' and 'takt simulate --trace'.
    """

    trace: Annotated[Path, tyro.conf.Positional]
    """The trace, one JSON object per line."""

    def run(self) -> None:
        """Replay, and say whether every line came out the same.

        Raises:
            UsageError: It cannot be read, or a line differs.
        """
        recorded = list(self._lines())
        again = list(replay(recorded))
        for number, (old, new) in enumerate(zip_longest(recorded, again), 1):
            if old != new:
                raise UsageError(
                    f"{self.trace}: line {number} differs\n  recorded: {old}\n  replayed: {new}"
                )
        print(f"{len(recorded)} lines, the same decisions")

    def _lines(self) -> Iterator[str]:
        try:
            with self.trace.open(encoding="utf-8") as file:
                for line in file:
                    yield line.rstrip("\n")
        except FileNotFoundError:
            raise UsageError(f"{self.trace}: no such trace") from None
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{self.trace}: cannot be read: {error}") from None
