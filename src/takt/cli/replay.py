"""``takt replay``: run a recorded trace through the scheduler again."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import tyro

from takt.cli.tracing.reading import file_lines
from takt.core.trace import replay
from takt.errors import TaktError, UsageError
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
            TaktError: It cannot be read, is no trace, or a line differs; the message names it.
        """
        try:
            done = self._replay_all()
        except TaktError as error:
            raise type(error)(f"{self.trace}: {error}") from error
        print(f"{done} lines, the same decisions")

    def _replay_all(self) -> int:
        """Replay every trace of the file; how many lines there were."""
        done = 0
        for trace in split_traces(file_lines(self.trace)):
            _replay(trace, done + 1)
            done += len(trace)
        if not done:
            raise UsageError("there is no trace in it")
        return done


def _replay(recorded: list[str], first: int) -> None:
    """Replay one trace, whose first line has the number ``first`` in its file."""
    again = replay(recorded, first=first)
    for number, (old, new) in enumerate(zip_longest(recorded, again), first):
        if old != new:
            raise UsageError(f"line {number} differs: recorded {old}, replayed {new}")
