"""Judges epochs: does the server hold the target, and is it clear already.

The rule is that of :mod:`takt.sim.knee`, so that a measured capacity and a simulated one mean the
same. An epoch counts as the attainment of the model that was served worst in it. The server
*holds* when the lower 95 % bound, one-sided, of the mean over the epochs reaches the target. After
3, 5, 10 and every further 10 epochs the run stops early if the same bound at 99 %, upwards or
downwards, leaves no doubt. Epochs that agree exactly have no spread, and their bound says nothing;
so it stops no sooner than after as many requests as would show a miss, were the attainment just
the target, 19 times out of 20: three times 1 / (1 - target).
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
_EXPECTED_MISSES = 3
"""With so many expected, none at all is seen in one of 20 runs."""


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


def is_clear(draws: Sequence[Draw], target: float, issued: int) -> bool:
    """Whether to stop after these epochs, although more were planned.

    Args:
        draws: The epochs.
        target: Attainment the server is to hold.
        issued: Requests in all of them.
    """
    number = len(draws)
    if number not in _LOOKS and (number == 0 or number % _LOOK_EVERY):
        return False
    return issued * (1 - target) >= _EXPECTED_MISSES and judged(draws, 0).is_sure(target)
