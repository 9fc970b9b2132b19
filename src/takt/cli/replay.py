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
from takt.runtime.trace_file import split_traces

__all__ = ["Replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Check that the scheduler decides again as it did when a trace was recorded.

    Traces come from 'takt serve --trace' and 'takt simulate --trace'. A server writes a new one
    whenever a worker starts and whenever a model becomes ready; all of them are replayed.
    """

    trace: Annotated[Path, tyro.conf.Positional]
    """The trace, one JSON object per line."""

    def run(self) -> None:
        """Replay, and say whether every line came out the same.

        Raises:
            UsageError: It cannot be read, or a line differs.
        """
        done = 0
        for trace in split_traces(self._lines()):
            self._replay(trace, done)
            done += len(trace)
        if not done:
            raise UsageError(f"{self.trace}: there is no trace in it")
        print(f"{done} lines, the same decisions")

    def _replay(self, recorded: list[str], before: int) -> None:
        """Replay one of the file's traces; ``before`` lines of it have been replayed."""
        for number, (old, new) in enumerate(zip_longest(recorded, replay(recorded)), before + 1):
            if old != new:
                raise UsageError(
                    f"{self.trace}: line {number} differs: recorded {old}, replayed {new}"
                )

    def _lines(self) -> Iterator[str]:
        try:
            with self.trace.open(encoding="utf-8") as file:
                yield from file
        except FileNotFoundError:
            raise UsageError(f"{self.trace}: no such trace") from None
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{self.trace}: cannot be read: {error}") from None
