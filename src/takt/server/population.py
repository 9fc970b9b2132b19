"""When a population has changed enough, and for long enough, to choose a formation for it again.

A choice is made for a population. It is made again when the measured population differs from that
one by a fifth, in its number or in its proportions, and stays so for a while: robots that are
switched off between two episodes, or that connect one after another, change nothing yet. A choice
that is being made is given up when the population has changed again for a quarter of that while.
Nothing is chosen for no robots.

The rules are pure: who measures, and who chooses, is :mod:`takt.server.reevaluation`.

Start reading at :meth:`PopulationWatch.see`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from takt.units import Nanos

__all__ = ["Population", "PopulationWatch", "Verdict"]

_A_FIFTH = 5
"""A change counts from one part in so many on."""
_PATIENCE_PER_DWELL = 4
"""A choice that is being made takes a minute of simulation: robots that are between two episodes
must not end it."""


@dataclass(frozen=True, slots=True)
class Population:
    """How many robots ask for which model."""

    robots: Mapping[str, int]

    @property
    def total(self) -> int:
        """Robots of all models."""
        return sum(self.robots.values())

    def differs_from(self, other: Population) -> bool:
        """Whether there are a fifth more or fewer robots than in ``other``, or a fifth of the
        robots would have to ask for another model to give its proportions.
        """
        here, there = self.total, other.total
        if not here or not there:
            return here != there
        if _A_FIFTH * abs(here - there) >= there:
            return True
        moved = sum(
            abs(self.robots.get(model, 0) * there - other.robots.get(model, 0) * here)
            for model in {**self.robots, **other.robots}
        )
        return _A_FIFTH * moved >= 2 * here * there  # who moves is missing here and surplus there

    def __str__(self) -> str:
        models = ", ".join(f"{model} {count}" for model, count in self.robots.items() if count)
        return f"{self.total} robots{f' ({models})' if models else ''}"


class Verdict(Enum):
    """What a population asks for."""

    KEEP = "keep"
    """Nothing."""
    CHOOSE = "choose"
    """To choose for it; until :meth:`PopulationWatch.has_chosen` that is being done."""
    CANCEL = "cancel"
    """To give up the choice that is being made: the population has changed again."""


class PopulationWatch:
    """Watches the population of one device.

    Args:
        chosen_for: What its formation was chosen for.
        dwell: How long a change must last.
    """

    def __init__(self, chosen_for: Population, dwell: Nanos) -> None:
        self.chosen_for = chosen_for
        """What the last choice was made for."""
        self._dwell = dwell
        self._changed: tuple[Population, Nanos] | None = None
        """A population that differs, and since when it has been like that."""
        self._choosing_for: Population | None = None
        self._strayed_at: Nanos | None = None
        """Since when the population has been unlike the one that is being chosen for."""

    def see(self, population: Population, now: Nanos) -> Verdict:
        """Take in what was measured at ``now``."""
        if self._choosing_for is not None:
            return self._while_choosing(self._choosing_for, population, now)
        if not population.total or not population.differs_from(self.chosen_for):
            self._changed = None
            return Verdict.KEEP
        if self._changed is None or population.differs_from(self._changed[0]):
            self._changed = population, now
            return Verdict.KEEP
        if now - self._changed[1] < self._dwell:
            return Verdict.KEEP
        self._changed, self._choosing_for, self._strayed_at = None, population, None
        return Verdict.CHOOSE

    def has_chosen(self) -> None:
        """The choice was made, or could not be made: either way not again for this population."""
        if self._choosing_for is not None:
            self.chosen_for, self._choosing_for = self._choosing_for, None

    def _while_choosing(
        self, choosing_for: Population, population: Population, now: Nanos
    ) -> Verdict:
        if not population.total:
            return Verdict.KEEP  # robots that pause say nothing, and there is time to choose now
        if not population.differs_from(choosing_for):
            self._strayed_at = None
            return Verdict.KEEP
        if self._strayed_at is None:
            self._strayed_at = now
        if now - self._strayed_at < self._dwell // _PATIENCE_PER_DWELL:
            return Verdict.KEEP
        self._choosing_for = None
        return Verdict.CANCEL
