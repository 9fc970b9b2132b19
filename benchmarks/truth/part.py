"""What a part of the truth page is: it lists its cells, measures one, and writes its section.

``run.py`` asks a part for its cells, measures the first that is not found yet, keeps what came of
it as one line of JSON, and asks again. So a run that was stopped goes on where it was, and what is
measured next may depend on what was found. A part never measures two cells at once, and one cell
takes a minute or two at most: that is what a stop can cost.

Each module ``benchmarks/truth/<part>.py`` has its part as ``PART``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

__all__ = ["Cell", "Claim", "Found", "Part"]

Found: TypeAlias = Mapping[str, Mapping[str, Any]]
"""What is known of a part: the JSON of each cell that was measured, by its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One thing to measure."""

    key: str
    """Unique in its part, and the same in every run: ``pi0 seed 1 lockstep at 24, round 1``."""
    seconds: float
    """How long it takes, about; for the time left and the budget."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What :meth:`Part.measure` needs to know; the runner does not look at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Something the product promises, and whether these figures bear it out."""

    text: str
    """One sentence with the figures in it."""
    holds: bool


class Part(Protocol):
    """One part of the page."""

    @property
    def name(self) -> str:
        """As ``--only`` names it: ``paced``, ``cpu``, ``stock``."""
        ...

    @property
    def packages(self) -> Sequence[str]:
        """Distributions whose versions matter; the result states them."""
        ...

    def cells(self, quick: bool, found: Found) -> Sequence[Cell]:
        """Every cell known of by now, those that were measured included, in the order to measure.

        Contestants that are compared take turns: first a round of each, then the next round.

        Args:
            quick: A short form, to see that everything runs: a minute or two in all.
            found: What was measured so far.
        """
        ...

    def measure(self, cell: Cell, found: Found, folder: Path) -> Mapping[str, Any]:
        """Measure one cell.

        Args:
            cell: One of :meth:`cells` that is not in ``found``.
            found: What was measured so far.
            folder: For files that later cells need (profiles, logs); it exists, and lives as long
                as the state of the run does. A file that is gone must be made again.

        Returns:
            What came of it, as JSON. A contestant that cannot run here is a result too: return
            ``{"skipped": reason}``.

        Raises:
            Exception: Whatever went wrong; nothing is kept, the run goes on with the next cell, and
                the next run tries this one again.
        """
        ...

    def claims(self, found: Found) -> Sequence[Claim]:
        """What the issue asks to be shown; nothing while the figures for it are missing."""
        ...

    def section(self, found: Found) -> str:
        """Markdown from ``## `` on; empty while nothing was found.

        Simulated and paced figures say that they are. What is missing is said too.
        """
        ...
