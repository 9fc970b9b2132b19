"""Each discipline is a key: the queue with the lowest one goes next."""

import pytest
from tests.core.driving import model_of, request_of, scheduler_of

from takt.core.disciplines import (
    DISCIPLINES,
    earliest_deadline,
    longest_queue,
    round_robin,
)
from takt.core.queue import Queue
from takt.core.request import Stage


def queue_of(*dues: int) -> Queue:
    queue = Queue(model_of(), Stage.PREFIX)
    for seq, due in enumerate(dues):
        queue.add(request_of(seq, due=due))
    return queue


def test_earliest_deadline_looks_at_the_head_alone() -> None:
    assert earliest_deadline(queue_of(50, 20, 90)) == 20


def test_earliest_deadline_passes_over_those_that_yield() -> None:
    queue = queue_of(50, 20)
    queue.yield_place(queue.feasible[0][2])

    assert earliest_deadline(queue) == 50


def test_longest_queue_counts_everybody_who_waits() -> None:
    long, short = queue_of(1, 2, 3), queue_of(1, 2)
    long.yield_place(long.feasible[0][2])

    assert longest_queue(long) == -3
    assert longest_queue(long) < longest_queue(short)


def test_round_robin_prefers_the_queue_served_longest_ago() -> None:
    never, recently = queue_of(1), queue_of(1)
    recently.turn = 7

    assert round_robin(never) < round_robin(recently)


def test_disciplines_are_known_by_the_names_of_their_functions() -> None:
    assert DISCIPLINES["round_robin"] is round_robin
    assert all(discipline.__name__ == name for name, discipline in DISCIPLINES.items())


@pytest.mark.parametrize(
    ("discipline", "order"),
    [
        ("earliest_deadline", "abccca"),
        ("round_robin", "abcacc"),  # from the fourth on, whoever was served longest ago
        ("longest_queue", "cacbca"),  # of equal lengths the earlier head
    ],
)
def test_three_queues_are_emptied_in_the_order_of_the_discipline(
    discipline: str, order: str
) -> None:
    models = [model_of(name, prefix=(1,), denoise=()) for name in "abc"]
    scheduler = scheduler_of(*models, discipline=discipline)
    dues = [("a", 10), ("a", 60), ("b", 20), ("c", 30), ("c", 40), ("c", 50)]
    for seq, (name, due) in enumerate(dues):
        scheduler.submit(request_of(seq, name, due=due, promise=1_000), 0)

    served = ""
    for now in range(len(dues)):
        (launch,) = scheduler.decide(now).launches
        scheduler.finish(launch.lane, now)
        served += launch.model

    assert served == order


@pytest.mark.parametrize("discipline", sorted(DISCIPLINES))
def test_queues_with_equal_keys_go_in_the_order_of_their_heads_not_of_their_models(
    discipline: str,
) -> None:
    models = [model_of(name, prefix=(1,), denoise=()) for name in "ab"]
    scheduler = scheduler_of(*models, discipline=discipline)
    scheduler.submit(request_of(0, "b", due=50), 0)
    scheduler.submit(request_of(1, "a", due=50), 0)

    (launch,) = scheduler.decide(0).launches

    assert launch.model == "b"
