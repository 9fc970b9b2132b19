"""A queue keeps two ranks, each in (due, seq) order."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.driving import model_of, request_of

from takt.core.queue import Entry, Queue
from takt.core.request import Stage
from takt.errors import InvariantError


def queue_of(*dues: int) -> Queue:
    """A queue whose requests are numbered in the order of ``dues``."""
    queue = Queue(model_of(), Stage.PREFIX)
    for seq, due in enumerate(dues):
        queue.add(request_of(seq, due=due))
    return queue


def numbers(rank: Iterable[Entry]) -> list[int]:
    return [entry[1] for entry in rank]


def test_the_earliest_due_stands_first_and_equals_stand_by_number() -> None:
    assert numbers(queue_of(30, 10, 20, 10).feasible) == [1, 3, 2, 0]


def test_a_request_that_yields_stands_among_the_hopeless_in_the_same_order() -> None:
    queue = queue_of(30, 10, 20)
    for entry in list(queue.feasible):
        if entry[0] < 30:
            queue.yield_place(entry[2])

    assert numbers(queue.feasible) == [0]
    assert numbers(queue.hopeless) == [1, 2]
    assert len(queue) == 3


def test_a_request_that_regains_its_place_stands_where_it_would_have_stood() -> None:
    queue = queue_of(30, 10, 20)
    request = queue.feasible[0][2]
    queue.yield_place(request)

    queue.regain_place(request)

    assert numbers(queue.feasible) == [1, 2, 0]
    assert queue.hopeless == []


def test_yields_says_in_which_rank_a_request_stands() -> None:
    queue = queue_of(10, 20)
    first, second = (entry[2] for entry in queue.feasible)
    queue.yield_place(first)

    assert queue.yields(first)
    assert not queue.yields(second)


def test_a_request_that_does_not_wait_cannot_be_removed() -> None:
    queue = queue_of(10)

    with pytest.raises(InvariantError, match="request 5 does not wait for pi0 PREFIX"):
        queue.remove(request_of(5, due=10))

    assert numbers(queue.feasible) == [0]


@given(
    dues=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    steps=st.lists(st.tuples(st.sampled_from(["remove", "yield", "regain"]), st.integers(0, 11))),
)
def test_no_mix_of_moves_loses_doubles_or_disorders_a_request(
    dues: list[int], steps: list[tuple[str, int]]
) -> None:
    queue = queue_of(*dues)
    requests = {entry[1]: entry[2] for entry in queue.feasible}
    feasible, hopeless = set(requests), set[int]()
    for step, seq in steps:
        if step == "remove" and seq in feasible | hopeless:
            queue.remove(requests[seq])
            feasible.discard(seq)
            hopeless.discard(seq)
        elif step == "yield" and seq in feasible:
            queue.yield_place(requests[seq])
            feasible.remove(seq)
            hopeless.add(seq)
        elif step == "regain" and seq in hopeless:
            queue.regain_place(requests[seq])
            hopeless.remove(seq)
            feasible.add(seq)

    assert numbers(queue.feasible) == sorted(feasible, key=lambda seq: (dues[seq], seq))
    assert numbers(queue.hopeless) == sorted(hopeless, key=lambda seq: (dues[seq], seq))
    assert len(queue) == len(feasible) + len(hopeless)


def test_a_launch_takes_the_head_the_feasible_before_the_hopeless() -> None:
    queue = queue_of(10, 20, 30)
    queue.yield_place(queue.feasible[0][2])

    assert [seq for _, seq, _ in queue.take_head((1, 2, 0))] == [1, 2, 0]
    assert len(queue) == 0


def test_a_launch_of_others_than_the_head_takes_nothing() -> None:
    queue = queue_of(10, 20)

    with pytest.raises(InvariantError, match=r"\(1,\) are not the head of pi0 PREFIX"):
        queue.take_head((1,))

    assert numbers(queue.feasible) == [0, 1]
