"""``takt trace``: what a scheduler did, as a timeline, a picture or a summary."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from takt.cli.option_numbers import check_numbers
from takt.cli.output_files import TIMELINE, check_outputs
from takt.cli.picture_file import check_picture
from takt.cli.tracing.perfetto import trace_document
from takt.cli.tracing.picture import plot_stories
from takt.cli.tracing.reading import file_lines, read_trace
from takt.cli.tracing.story import Story, Window, stories_of
from takt.cli.tracing.summary import show_summary, summary_of
from takt.errors import TaktError, UsageError
from takt.files import replacing
from takt.units import SECOND, Nanos, seconds

__all__ = ["Trace"]

_SHOWN: Nanos = SECOND
"""How much a picture shows unless told otherwise; of more than that no launch can be made out."""
_MOST = {"seconds": 1e9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Show every launch, queue and request of a recorded trace.

    Traces come from 'takt serve --trace' and 'takt simulate --trace'. Prints a summary unless a
    file is asked for.
    """

    trace: Annotated[Path, tyro.conf.Positional]
    """The trace, one JSON object per line."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write a timeline as trace-event JSON, for https://ui.perfetto.dev or chrome://tracing."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Draw lanes and queues over time to this PNG or SVG file; the first second unless --seconds
    says more."""
    summary: bool = False
    """Print the summary also when a file is written."""
    json: bool = False
    """Print the summary as JSON; takt/cli/tracing/summary.py explains its keys."""
    from_seconds: float = 0.0
    """Where to begin, counted from the trace's first event."""
    seconds: float | None = None
    """How much to show from there; all of it when absent."""

    def run(self) -> None:
        """Read the trace and show it.

        Raises:
            UsageError: It cannot be read, nothing happens in the time asked for, or a file would
                destroy another.
            ConfigError: A file cannot be written, or a number is impossible.
        """
        self._check()
        stories = self._stories()
        if not any(story.launches or story.lives for story in stories):
            self._say_nothing_happens()
            return
        if self.out is not None:
            self._write(self.out, stories)
        if self.plot is not None:
            plot_stories(stories, self.plot, self._plot_window(), subtitle=self.trace.name)
            _say(f"wrote {self.plot}")
        if self.summary or self.json or (self.out is None and self.plot is None):
            self._show(stories)

    def _check(self) -> None:
        check_numbers(self, _MOST)
        if self.from_seconds < 0:
            raise UsageError(f"--from-seconds must be at least 0, got {self.from_seconds:g}")
        check_picture("--plot", self.plot)
        check_outputs([("--out", self.out, TIMELINE), ("--plot", self.plot)], self.trace)

    def _stories(self) -> list[Story]:
        parts = read_trace(file_lines(self.trace))
        try:
            first = next(parts, None)
            if first is None:
                raise UsageError("there is no trace in it")
            return stories_of(chain([first], parts), self._window())
        except TaktError as error:
            raise type(error)(f"{self.trace}: {error}") from None

    def _say_nothing_happens(self) -> None:
        """What a server records that serves nobody is a trace all the same.

        Raises:
            UsageError: Only a part of the trace was asked for, or a file.
        """
        if self.from_seconds or self.seconds is not None:
            raise UsageError(f"{self.trace}: nothing happens in the time asked for")
        said = f"{self.trace}: no request came while it was recorded"
        if self.out is not None or self.plot is not None:
            raise UsageError(f"{said}: there is nothing to draw")
        print(json.dumps({"setups": []}, indent=2) if self.json else said)

    def _window(self) -> Window:
        start = seconds(self.from_seconds)
        return Window(start, None if self.seconds is None else start + seconds(self.seconds))

    def _plot_window(self) -> Window:
        start, end = self._window()
        return Window(start, start + _SHOWN if end is None else end)

    def _write(self, path: Path, stories: Sequence[Story]) -> None:
        try:
            with replacing(path) as fresh, fresh.open("w", encoding="utf-8") as file:
                json.dump(trace_document(stories), file, separators=(",", ":"))
        except OSError as error:
            raise UsageError(f"--out {path}: {error.strerror}") from None
        _say(f"wrote {path}; open it at https://ui.perfetto.dev")

    def _show(self, stories: Sequence[Story]) -> None:
        summaries = [summary_of(story) for story in stories]
        if self.json:
            print(json.dumps({"setups": summaries}, indent=2))
        else:
            show_summary(summaries, Console())


def _say(text: str) -> None:
    print(text, file=sys.stderr)
