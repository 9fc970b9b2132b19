"""Which queue goes next: key functions over queues, the lowest key wins.

A discipline is asked only about queues that have a feasible request. Queues with equal keys are
taken in the order of their heads, so that a decision never depends on the order of models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from takt.core.queue import Queue

__all__ = [
    "DISCIPLINES",
    "Discipline",
    "earliest_deadline",
    "least_slack",
    "longest_queue",
    "round_robin",
]

Discipline: TypeAlias = Callable[[Queue], int]
"""Key of a queue that has a feasible request; the queue with the lowest key goes next."""


def earliest_deadline(queue: Queue) -> int:
    """The queue whose head has the least time left until its due, one slo more per class.

    Source:
        Robion (arXiv 2609.12075), earliest SLO first. Time left and due differ by ``now``, which
        is the same for all queues, so the due itself is the key.
    """
    return queue.feasible[0][0]


def least_slack(queue: Queue) -> int:
    """The queue whose head has the least time to spare: due less now less expected service.

    With one model in one layout this is :func:`earliest_deadline`. Among several, a head that
    still needs long goes before one that needs little, though its due is later.
    """
    order, _, request = queue.feasible[0]
    return order - queue.service[request.layout]


def round_robin(queue: Queue) -> int:
    """The queue that was served longest ago."""
    return queue.turn


def longest_queue(queue: Queue) -> int:
    """The queue with the most requests waiting."""
    return -len(queue)


DISCIPLINES: Mapping[str, Discipline] = {
    discipline.__name__: discipline
    for discipline in (earliest_deadline, least_slack, round_robin, longest_queue)
}
"""Every discipline by the name a fleet file gives it."""
