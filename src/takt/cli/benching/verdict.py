"""Judges epochs: does the server hold the target, and is it clear already.

The rule is that of :mod:`takt.sim.knee`, so that a measured capacity and a simulated one mean the
same. An epoch counts as the attainment of the model that was served worst in it. The server
*holds* when the lower 95 % bound, one-sided, of the mean over the epochs reaches the target. After
3, 5, 10 and every further 10 epochs the run stops early if the same bound at 99 %, upwards or
downwards, leaves no doubt; upwards that takes as many robots, over all epochs, as would show a
late one: see :meth:`~takt.sim.knee.Measured.is_sure`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from takt.cli.driving.robot_run import RobotRun
from takt.core.attainment import summarise
from takt.errors import TaktError
from takt.sim.knee import Draw, Measured

__all__ = ["NothingSentError", "draw_of", "is_clear", "judged"]

_LOOKS = (3, 5)
_LOOK_EVERY = 10


class NothingSentError(TaktError):
    """An epoch was too short for the robots to send anything."""


def draw_of(robots: Iterable[RobotRun]) -> Draw:
    """What one epoch says.

    Raises:
        NothingSentError: No robot sent anything.
    """
    summary = summarise(record for robot in robots for record in robot.records)
    if not summary.by_model:
        raise NothingSentError("nothing was sent in the time that counts; raise --seconds")
    by_model = {name: part.attainment for name, part in summary.by_model.items()}
    worst_robot = min(part.attainment for part in summary.by_robot.values())
    return Draw(min(by_model.values()), worst_robot, by_model)


def judged(draws: Sequence[Draw], robots: int) -> Measured:
    """The epochs of a population."""
    return Measured(population=robots, draws=tuple(draws))


def is_clear(draws: Sequence[Draw], target: float, robots: int) -> bool:
    """Whether to stop after these epochs, although more were planned.

    Args:
        draws: The epochs.
        target: Attainment the server is to hold.
        robots: Of each.
    """
    number = len(draws)
    if number not in _LOOKS and (number == 0 or number % _LOOK_EVERY):
        return False
    return judged(draws, robots).is_sure(target)
