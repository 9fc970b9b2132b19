"""One waiting place, superseding, and one outcome for each observation."""

import pytest

from takt.errors import ConfigError, InvariantError, RefusedError
from takt.session.session import Session, SessionRules
from takt.session.timing import Declared, NetworkAllowance, Timing, resolve_timing
from takt.units import ms


def at(arrival: int) -> Timing:
    return resolve_timing(arrival, declared=Declared(), slo=ms(100), allowance=0)


def session_of(
    *, supersede: bool = True, max_in_flight: int = 3, max_waiting: int = 64
) -> Session[str]:
    rules = SessionRules(supersede=supersede, max_in_flight=max_in_flight, max_waiting=max_waiting)
    allowance = NetworkAllowance(constant=0, most=ms(1000))
    return Session(number=1, name="arm", rules=rules, allowance=allowance)


def test_the_newest_observation_supersedes_the_one_that_waits() -> None:
    session = session_of()
    session.offer("old", timing=at(0))

    offered = session.offer("new", timing=at(1))

    assert offered.superseded is not None
    assert offered.superseded.item == "old"
    taken = session.take()
    assert taken is not None
    assert taken.item == "new"


def test_what_is_in_flight_is_not_superseded() -> None:
    session = session_of()
    session.offer("flying", timing=at(0))
    session.take()

    assert session.offer("new", timing=at(1)).superseded is None


def test_no_more_are_in_flight_than_the_rules_allow() -> None:
    session = session_of(max_in_flight=1)
    first = session.offer("first", timing=at(0)).sequence
    session.take()
    session.offer("second", timing=at(1))
    blocked = session.take()

    session.settle(first)

    assert blocked is None
    assert session.take() is not None


def test_every_observation_gets_a_number_of_its_own_even_if_superseded() -> None:
    session = session_of()

    assert [session.offer(str(n), timing=at(n)).sequence for n in range(4)] == [0, 1, 2, 3]


def test_without_superseding_all_wait_in_order_up_to_the_limit() -> None:
    session = session_of(supersede=False, max_waiting=2)
    assert session.offer("a", timing=at(0)).superseded is None
    assert session.offer("b", timing=at(1)).superseded is None

    with pytest.raises(RefusedError, match="2 observations waiting") as refused:
        session.offer("c", timing=at(2))

    assert refused.value.code == "busy"
    taken = [session.take(), session.take()]
    assert [pending.item for pending in taken if pending is not None] == ["a", "b"]


def test_closing_hands_back_everything_without_an_answer() -> None:
    session = session_of()
    session.offer("flying", timing=at(0))
    session.take()
    session.offer("waiting", timing=at(1))

    unanswered = session.close()

    assert [pending.item for pending in unanswered] == ["flying", "waiting"]
    assert session.close() == []


def test_an_answer_for_a_closed_session_is_nobodys() -> None:
    session = session_of()
    sequence = session.offer("flying", timing=at(0)).sequence
    session.take()
    session.close()

    assert session.settle(sequence) is None


def test_answering_twice_is_our_bug() -> None:
    session = session_of()
    sequence = session.offer("flying", timing=at(0)).sequence
    session.take()
    session.settle(sequence)

    with pytest.raises(InvariantError, match="not in flight"):
        session.settle(sequence)


def test_a_closed_session_takes_nothing_more() -> None:
    session = session_of()
    session.close()

    with pytest.raises(RefusedError, match="closed"):
        session.offer("late", timing=at(0))


@pytest.mark.parametrize("name", ["max_in_flight", "max_waiting"])
def test_impossible_rules_are_refused_by_name(name: str) -> None:
    impossible = {"max_in_flight": 1, "max_waiting": 1} | {name: 0}

    with pytest.raises(ConfigError, match=name):
        SessionRules(
            max_in_flight=impossible["max_in_flight"], max_waiting=impossible["max_waiting"]
        )
