"""Alarms ring for requests that still wait, and for nobody else."""

from hypothesis import given
from hypothesis import strategies as st
from tests.core.driving import model_of, request_of

from takt.core.alarms import Alarms
from takt.core.queue import Queue
from takt.core.request import Stage

QUEUE = Queue(model_of(), Stage.PREFIX)


def test_an_alarm_rings_at_its_instant_for_who_still_waits() -> None:
    alarms = Alarms()
    early, late = request_of(1), request_of(2)
    alarms.set(10, early, QUEUE)
    alarms.set(20, late, QUEUE)

    assert alarms.next() == 10
    assert alarms.ring(9) == []
    assert alarms.ring(10) == [(10, early, QUEUE)]
    assert alarms.next() == 20


def test_an_alarm_of_an_earlier_wait_rings_for_nobody() -> None:
    alarms = Alarms()
    request = request_of(1)
    alarms.set(10, request, QUEUE)
    request.moves += 2

    assert alarms.next() is None
    assert alarms.ring(10) == []


def test_those_who_have_gone_take_no_memory_though_somebody_stays() -> None:
    alarms = Alarms()
    alarms.set(1, request_of(0), QUEUE)
    for seq in range(1, 5_000):
        gone = request_of(seq)
        alarms.set(seq + 1, gone, QUEUE)
        gone.moves += 1

    assert len(alarms) < 100
    assert alarms.next() == 1


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=30), st.integers(0, 60))
def test_the_earliest_rings_first(alarms_set: list[tuple[int, bool]], now: int) -> None:
    alarms = Alarms()
    expected: list[tuple[int, int]] = []
    for seq, (instant, stays) in enumerate(alarms_set):
        request = request_of(seq)
        alarms.set(instant, request, QUEUE)
        request.moves += not stays
        if stays and instant <= now:
            expected.append((instant, seq))

    assert [(instant, request.seq) for instant, request, _ in alarms.ring(now)] == sorted(expected)
    assert all(instant > now for instant, _, _ in alarms.ring(100))


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=90))
def test_the_next_alarm_is_the_earliest_of_those_who_still_wait(
    alarms_set: list[tuple[int, bool]],
) -> None:
    alarms = Alarms()
    requests = [request_of(seq) for seq in range(len(alarms_set))]
    for request, (instant, _) in zip(requests, alarms_set, strict=True):
        alarms.set(instant, request, QUEUE)
    for request, (_, stays) in zip(requests, alarms_set, strict=True):
        request.moves += not stays
    waiting = sorted(instant for instant, stays in alarms_set if stays)

    assert alarms.next() == (waiting[0] if waiting else None)
    assert [instant for instant, _, _ in alarms.ring(50)] == waiting
