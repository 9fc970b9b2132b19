"""What a person sees while episodes run: a panel that lives, or a line per episode.

A terminal gets the panel, with the policy's picture as coloured blocks; a file gets lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.console import Console, Group
from rich.live import Live
from rich.style import Style
from rich.text import Text

from takt.cli.evaluating.summary import sentence, summary_of
from takt.client.rollout import EpisodeResult, Moment
from takt.units import MILLISECOND, Nanos

__all__ = ["EpisodeView", "blocks"]

_REFRESH_EVERY: Nanos = 100 * MILLISECOND
_COLUMNS = 38
_SOLVED, _UNSOLVED = "●", "○"
_BAR = 8
"""Characters of an action's bar on each side of zero."""


class EpisodeView:
    """Shows episodes on a console.

    Args:
        console: Where.
        title: What is evaluated.
        total: Episodes to come.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(
        self,
        console: Console,
        *,
        title: str,
        total: int,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        self._console = console
        self._title = title
        self._total = total
        self._clock = clock
        self._results: list[EpisodeResult] = []
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._next_refresh: Nanos = 0

    def open(self) -> AbstractContextManager[object]:
        """What to be in while episodes run."""
        return nullcontext() if self._live is None else self._live

    def look(self, moment: Moment) -> None:
        """An action is about to be executed."""
        now = self._clock()
        if self._live is not None and now >= self._next_refresh:
            self._next_refresh = now + _REFRESH_EVERY
            self._live.update(self.panel(moment), refresh=True)

    def finished(self, result: EpisodeResult) -> None:
        """An episode is over."""
        self._results.append(result)
        if self._live is None:
            word = "solved" if result.is_solved else "not solved"
            self._console.print(
                f"episode {len(self._results)} of {self._total}: {word} after {result.steps} steps",
                highlight=False,
            )

    def panel(self, moment: Moment) -> Group:
        """Everything at one moment."""
        image = moment.observation.get("observation/image")
        seen: list[Text] = []
        if isinstance(image, np.ndarray):
            seen = [blocks(cast("NDArray[Any]", image), _COLUMNS)]
        marks = "".join(_SOLVED if result.is_solved else _UNSOLVED for result in self._results)
        told = sentence(summary_of(self._results)) if self._results else "first episode"
        head = f"{self._title}\nepisode {len(self._results) + 1} of {self._total},"
        head += f" step {moment.step}\ntold: {moment.observation.get('prompt', '')}"
        return Group(Text(head), *seen, _bars(moment.action), Text(marks), Text(told))


def blocks(image: NDArray[Any], columns: int) -> Text:
    """A picture as characters, two pixels above each other in each.

    Args:
        image: ``(height, width, 3)``, RGB, 0..255.
        columns: Characters in a line.
    """
    height, width = image.shape[:2]
    lines = max(1, round(columns * height / width / 2))
    rows = np.arange(2 * lines) * height // (2 * lines)
    small = image[rows][:, np.arange(columns) * width // columns]
    text = Text(end="")
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        for above, below in zip(upper, lower, strict=True):
            style = Style(color=_color(above), bgcolor=_color(below))
            text.append("▀", style)
        text.append("\n")
    return text


def _color(pixel: NDArray[Any]) -> Color:
    red, green, blue = (int(value) for value in pixel)
    return Color.from_rgb(red, green, blue)


def _bars(action: Sequence[float] | NDArray[Any]) -> Text:
    lines: list[str] = []
    for number, value in enumerate(np.clip(np.asarray(action, float), -1.0, 1.0)):
        length = round(abs(value) * _BAR)
        left = ("█" * length if value < 0 else "").rjust(_BAR)
        right = ("█" * length if value > 0 else "").ljust(_BAR)
        lines.append(f"action {number} {left}|{right} {value:+.2f}")
    return Text("\n".join(lines))
