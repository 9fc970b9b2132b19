"""Who has a session, who wins it, and that every observation has exactly one outcome."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from takt.errors import ConfigError, RefusedError, UsageError, WireError
from takt.session.session import Pending, SessionRules
from takt.session.table import Closed, SecondConnection, SessionTable
from takt.session.timing import Declared, Timing, resolve_timing
from takt.units import SECOND, ms


def at(arrival: int, due_in: int = 0) -> Timing:
    declared = Declared(due_in=due_in)
    return resolve_timing(arrival, declared=declared, slo=ms(100), allowance=0)


def test_a_reconnecting_robot_takes_its_session_over() -> None:
    table: SessionTable[str] = SessionTable()
    older = table.open(1, "arm").session
    older.offer("waiting", timing=at(0))

    opened = table.open(2, "arm")

    assert opened.displaced is not None
    assert opened.displaced.connection == 1
    assert [pending.item for pending in opened.displaced.unanswered] == ["waiting"]
    assert table.find(1, "arm") is None
    assert table.find(2, "arm") is opened.session


def test_the_old_connection_of_a_robot_that_moved_closes_without_harm() -> None:
    table: SessionTable[str] = SessionTable()
    table.open(1, "arm")
    newer = table.open(2, "arm").session

    assert table.close(1) == []
    assert table.find(2, "arm") is newer


def test_a_second_connection_is_refused_where_that_is_configured() -> None:
    table: SessionTable[str] = SessionTable(second_connection=SecondConnection.REFUSE)
    first = table.open(1, "arm").session

    with pytest.raises(RefusedError, match="'arm' is connected already"):
        table.open(2, "arm")

    assert table.find(1, "arm") is first


def test_clients_that_declare_nothing_never_meet() -> None:
    table: SessionTable[str] = SessionTable(second_connection=SecondConnection.REFUSE)

    names = [table.open(connection).session.name for connection in range(3)]

    assert names == ["connection-0", "connection-1", "connection-2"]


def test_one_connection_may_carry_several_robots_and_takes_all_with_it() -> None:
    table: SessionTable[str] = SessionTable()
    table.open(1, "left").session.offer("a", timing=at(0))
    table.open(1, "right").session.offer("b", timing=at(0))
    table.open(2, "other")

    ended = table.close(1)

    assert [closed.session.name for closed in ended] == ["left", "right"]
    assert [pending.item for closed in ended for pending in closed.unanswered] == ["a", "b"]
    assert [session.name for session in table] == ["other"]


def test_a_free_slot_goes_to_the_earliest_due() -> None:
    table: SessionTable[str] = SessionTable()
    for connection, due_in in enumerate([ms(50), ms(10), ms(10)]):
        table.open(connection).session.offer(str(connection), timing=at(0, due_in))

    order = [table.take() for _ in range(4)]

    assert [taken and taken[1].item for taken in order] == ["1", "2", "0", None]


@pytest.mark.parametrize("robot_id", ["", "x" * 129, "arm\n2026 ERROR", "\x1b[31marm"])
def test_an_impossible_robot_id_is_the_clients_mistake(robot_id: str) -> None:
    with pytest.raises(WireError, match="1 to 128 printable characters") as refused:
        SessionTable[str]().open(1, robot_id)

    assert str(refused.value).isprintable()


def test_one_connection_cannot_take_everybodys_places() -> None:
    table: SessionTable[str] = SessionTable(max_sessions=4, max_per_connection=2)
    table.open(1, "a")
    table.open(1, "b")

    with pytest.raises(RefusedError, match="2 robots, the limit; open another") as refused:
        table.open(1, "c")

    assert refused.value.code == "busy"
    table.open(2, "c")


def test_places_of_a_connection_are_free_again_when_its_robots_leave() -> None:
    table: SessionTable[str] = SessionTable(max_per_connection=1)
    table.open(1, "a")
    table.open(2, "a")

    table.open(1, "b")
    table.close(1)

    assert table.open(1, "c").session.name == "c"


def test_opening_a_session_twice_is_the_callers_mistake() -> None:
    table: SessionTable[str] = SessionTable()
    table.open(1, "arm")

    with pytest.raises(UsageError, match="connection 1"):
        table.open(1, "arm")


def test_sessions_are_bounded() -> None:
    table: SessionTable[str] = SessionTable(max_sessions=1)
    table.open(1)

    with pytest.raises(RefusedError, match="the limit"):
        table.open(2)


def test_an_impossible_allowance_is_refused_at_start() -> None:
    with pytest.raises(ConfigError, match="network allowance"):
        SessionTable[str](allowance=2 * SECOND)


CONNECTIONS = st.integers(0, 3)
ROBOTS = st.sampled_from([None, "arm", "leg"])


class Sessions(RuleBasedStateMachine):
    """Doors that open, offer, answer and close in any order."""

    supersede = True

    def __init__(self) -> None:
        super().__init__()
        rules = SessionRules(supersede=self.supersede, max_in_flight=2, max_waiting=3)
        self.table: SessionTable[int] = SessionTable(rules=rules)
        self.now = 0
        self.offered = 0
        self.outcomes: dict[int, str] = {}
        self.flying: list[tuple[int, str | None, Pending[int]]] = []
        self.numbers: set[tuple[int, int]] = set()

    def outcome(self, pending: Pending[int], name: str) -> None:
        assert pending.item not in self.outcomes, "a second outcome"
        self.outcomes[pending.item] = name

    def ended(self, closed: Closed[int]) -> None:
        for pending in closed.unanswered:
            self.outcome(pending, "cancelled")

    @rule(connection=CONNECTIONS, robot=ROBOTS)
    def open(self, connection: int, robot: str | None) -> None:
        if self.table.find(connection, robot) is not None:
            return
        displaced = self.table.open(connection, robot).displaced
        if displaced is not None:
            self.ended(displaced)

    @rule(connection=CONNECTIONS, robot=ROBOTS, due_in=st.integers(-5, 5))
    def offer(self, connection: int, robot: str | None, due_in: int) -> None:
        session = self.table.find(connection, robot)
        if session is None:
            return
        self.now += 1
        item, self.offered = self.offered, self.offered + 1
        try:
            offered = session.offer(item, timing=at(self.now, due_in))
        except RefusedError:
            self.outcomes[item] = "refused"
            return
        assert (session.number, offered.sequence) not in self.numbers
        self.numbers.add((session.number, offered.sequence))
        if offered.superseded is not None:
            assert offered.superseded.item < item
            self.outcome(offered.superseded, "superseded")

    @rule()
    def take(self) -> None:
        heads = [session.head for session in self.table]
        dues = [head.timing.due for head in heads if head is not None]
        taken = self.table.take()
        assert (taken is None) == (not dues)
        if taken is not None:
            assert taken[1].timing.due == min(dues)
            session, pending = taken
            owner = next(
                (c, r)
                for c in range(4)
                for r in (None, "arm", "leg")
                if self.table.find(c, r) is session
            )
            self.flying.append((*owner, pending))

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        connection, robot, pending = self.flying.pop(
            data.draw(st.integers(0, len(self.flying) - 1))
        )
        session = self.table.find(connection, robot)
        if pending.item in self.outcomes or session is None:
            assert self.outcomes[pending.item] == "cancelled"
            return
        settled = session.settle(pending.sequence)
        assert settled is pending
        self.outcome(pending, "answered")

    @rule(connection=CONNECTIONS)
    def close(self, connection: int) -> None:
        for closed in self.table.close(connection):
            self.ended(closed)

    @invariant()
    def at_most_one_waits_and_two_fly(self) -> None:
        for session in self.table:
            assert session.num_waiting <= (1 if self.supersede else 3)
            assert session.num_in_flight <= 2

    @invariant()
    def every_observation_is_somewhere_once(self) -> None:
        held = sum(session.num_waiting + session.num_in_flight for session in self.table)
        assert held + len(self.outcomes) == self.offered

    def teardown(self) -> None:
        for connection in range(4):
            self.close(connection)
        assert len(self.outcomes) == self.offered


class CountingSessions(Sessions):
    """The same without superseding."""

    supersede = False


TestSuperseding = Sessions.TestCase
TestSuperseding.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCounting = CountingSessions.TestCase
TestCounting.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
