"""The queue of a robot: never an executed timestep again, never backwards, O(1)."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from takt.errors import UsageError
from takt.robot.action_queue import ActionQueue, ChunkOrigin, Junction, TimedChunk


def queue_of(*chunks: tuple[int, Sequence[object]]) -> ActionQueue[object]:
    queue: ActionQueue[object] = ActionQueue()
    for first_timestep, actions in chunks:
        queue.merge(first_timestep, actions)
    return queue


def test_actions_leave_in_the_order_of_their_timesteps() -> None:
    queue = queue_of((0, "abc"))

    assert [queue.pop(), queue.pop(), queue.pop()] == ["a", "b", "c"]
    assert (queue.remaining, queue.next_timestep) == (0, 3)


def test_executed_timesteps_of_a_new_chunk_are_dropped() -> None:
    queue = queue_of((0, "abcd"))
    queue.advance(2)

    fresh = queue.merge(0, "ABCDE")

    assert fresh == 3
    assert (queue.next_timestep, queue.remaining, queue.pop()) == (2, 3, "C")


def test_timesteps_that_the_new_chunk_does_not_cover_are_dropped() -> None:
    queue = queue_of((0, "abcdef"), (0, "AB"))

    assert [queue.pop(), queue.pop(), queue.pop()] == ["A", "B", None]


def test_a_chunk_of_executed_timesteps_only_leaves_the_queue_alone() -> None:
    queue = queue_of((0, "abcd"))
    queue.advance(2)

    assert queue.merge(0, "AB") == 0
    assert queue.pop() == "c"


def test_an_empty_chunk_leaves_the_queue_alone() -> None:
    queue = queue_of((0, "ab"))

    assert queue.merge(5, "") == 0
    assert (queue.remaining, queue.pop()) == (2, "a")


def test_a_chunk_that_begins_later_makes_the_robot_skip_forward() -> None:
    queue = queue_of((0, "abcd"), (10, "kl"))

    assert (queue.next_timestep, queue.remaining) == (10, 2)
    assert [queue.pop(), queue.pop()] == ["k", "l"]
    assert queue.merge(0, "abcdefghijkl") == 0


def test_looking_at_no_tick_does_not_skip() -> None:
    queue = queue_of((10, "kl"))

    queue.advance(0)

    assert queue.merge(0, "ab") == 2
    assert queue.pop() == "a"


def test_a_starved_tick_does_not_advance_the_timestep() -> None:
    queue = queue_of((0, "ab"))
    queue.advance(5)

    assert (queue.starved_ticks, queue.next_timestep) == (3, 2)
    queue.merge(2, "cd")
    assert queue.pop() == "c"


def test_ticks_before_the_first_chunk_are_starved() -> None:
    queue = queue_of()

    assert queue.pop() is None
    assert queue.advance(2) == 2
    assert (queue.starved_ticks, queue.next_timestep, queue.fill) == (3, 0, 0.0)


def test_the_plan_being_executed_is_there_until_nothing_is_left_of_it() -> None:
    queue = queue_of((0, "abc"))
    queue.advance(2)

    plan = queue.queued
    assert plan is not None
    assert (plan.first_timestep, plan.actions) == (0, "abc")

    queue.advance(1)
    assert queue.queued is None
    assert queue_of().queued is None


def test_fill_is_measured_against_the_longest_chunk_so_far() -> None:
    queue = queue_of((0, range(20)), (0, range(10)))
    queue.advance(5)

    assert (queue.remaining, queue.longest_chunk, queue.fill) == (5, 20, 0.25)


def test_rows_of_an_array_are_handed_out_without_copying() -> None:
    chunk = np.arange(12, dtype=np.float32).reshape(4, 3)
    queue: ActionQueue[np.ndarray] = ActionQueue()
    queue.merge(7, chunk)

    action = queue.pop()

    assert action is not None
    assert np.shares_memory(action, chunk)
    np.testing.assert_array_equal(action, [0, 1, 2])


def test_a_chunk_of_any_length_costs_the_same() -> None:
    queue: ActionQueue[int] = ActionQueue()
    queue.merge(0, range(10**15))

    assert queue.advance(10**14) == 0
    assert queue.merge(10**14 - 1, range(10**15)) == 10**15 - 1
    assert queue.pop() == 1


def test_another_merge_rule_sees_what_is_queued_and_what_arrived() -> None:
    def first_wins(
        queued: TimedChunk[str], arrived: TimedChunk[str], next_timestep: int
    ) -> TimedChunk[str]:
        assert next_timestep == 1
        kept = [queued.actions[i] for i in range(len(queued.actions))]
        later = range(queued.end - arrived.first_timestep, len(arrived.actions))
        return TimedChunk(queued.first_timestep, kept + [arrived.actions[i] for i in later])

    queue: ActionQueue[str] = ActionQueue(first_wins)
    queue.merge(0, "abcd")
    queue.advance(1)
    queue.merge(1, "BCDEF")

    assert [queue.pop() for _ in range(5)] == ["b", "c", "d", "E", "F"]


class Unreadable:
    """Actions that nobody may look at."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int, /) -> object:
        raise AssertionError(index)


def test_without_anybody_who_looks_no_action_is_read() -> None:
    queue: ActionQueue[object] = ActionQueue()

    queue.merge(0, Unreadable(), ChunkOrigin(0, 0))
    queue.advance(3)
    queue.merge(2, Unreadable(), ChunkOrigin(1, 0))

    assert (queue.next_timestep, queue.remaining) == (3, 9)


def test_the_next_action_is_known_with_its_origin_before_it_is_executed() -> None:
    queue: ActionQueue[str] = ActionQueue()
    queue.merge(4, "abcd", ChunkOrigin(7, observed=100))
    queue.advance(2)

    action = queue.peek()

    assert action is not None
    assert (action.action, action.timestep, action.index) == ("c", 6, 2)
    assert (action.first_timestep, action.origin) == (4, ChunkOrigin(7, 100))
    assert (action.age(130), action.is_blended) == (30, False)
    assert queue.pop() == "c"


def test_an_action_of_unknown_origin_has_no_age() -> None:
    queue = queue_of((0, "a"))

    action = queue.peek()

    assert action is not None
    assert action.age(5) is None


def test_there_is_nothing_to_see_in_an_empty_queue() -> None:
    assert queue_of().peek() is None


@pytest.mark.parametrize("chunk_id", [2, 3])
def test_a_chunk_that_was_overtaken_or_came_twice_is_dropped(chunk_id: int) -> None:
    queue: ActionQueue[str] = ActionQueue()
    queue.merge(0, "abcd", ChunkOrigin(3, observed=10))

    fresh = queue.merge(0, "ABCD", ChunkOrigin(chunk_id, observed=10))

    assert (fresh, queue.overtaken, queue.pop()) == (0, 1, "a")


def test_a_flush_drops_what_is_queued_and_keeps_the_timestep() -> None:
    queue = queue_of((0, "abcd"))
    queue.advance(2)

    assert queue.flush("drop") == 2
    assert (queue.remaining, queue.next_timestep, queue.pop()) == (0, 2, None)
    assert queue.merge(0, "ABCD") == 2
    assert queue.pop() == "C"


def test_a_flush_of_a_queue_that_begins_later_does_not_skip() -> None:
    queue = queue_of((10, "kl"))

    queue.flush("drop")

    assert queue.next_timestep == 0


def test_after_a_cut_a_chunk_may_replace_the_queue_whatever_the_rule() -> None:
    def never(queued: object, arrived: object, next_timestep: int) -> TimedChunk[str]:
        raise AssertionError

    queue: ActionQueue[str] = ActionQueue(never)
    queue.merge(0, "abcd")

    assert queue.flush("replace") == 0
    assert queue.pop() == "a"
    queue.merge(1, "BCD")
    assert queue.pop() == "B"
    with pytest.raises(AssertionError):
        queue.merge(2, "CD")


def test_a_flush_that_keeps_changes_nothing() -> None:
    queue = queue_of((0, "ab"))

    assert queue.flush("keep") == 0
    assert queue.remaining == 2


def test_a_rule_that_refuses_leaves_the_queue_as_it_was() -> None:
    def refuse(queued: object, arrived: object, next_timestep: int) -> TimedChunk[str]:
        raise UsageError("no")

    queue: ActionQueue[str] = ActionQueue(refuse)
    queue.merge(0, "abc")

    with pytest.raises(UsageError):
        queue.merge(0, "ABC")

    assert [queue.pop(), queue.pop()] == ["a", "b"]


def test_every_junction_is_told_with_the_action_executed_before_it() -> None:
    junctions: list[Junction[str]] = []
    queue: ActionQueue[str] = ActionQueue(on_splice=junctions.append)

    queue.merge(0, "abcd")
    queue.advance(2)
    queue.merge(1, "BCD")
    queue.merge(1, "xyz")  # nothing was executed in between
    queue.advance(2)
    queue.merge(4, "EF")

    seen = [(j.timestep, j.executed, j.queued and j.queued.actions) for j in junctions]
    assert seen == [(0, None, None), (2, "b", "abcd"), (2, "b", "BCD"), (4, "z", None)]


@pytest.mark.parametrize("operation", ["merge", "advance"])
def test_negative_numbers_are_refused(operation: str) -> None:
    queue = queue_of()

    with pytest.raises(UsageError, match="at least 0, got -1"):
        queue.merge(-1, "a") if operation == "merge" else queue.advance(-1)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 30), st.integers(0, 12)),
            st.integers(0, 15),
        )
    )
)
def test_advancing_equals_popping_as_often(steps: list[tuple[int, int] | int]) -> None:
    jumping: ActionQueue[int] = ActionQueue()
    walking: ActionQueue[int] = ActionQueue()
    for step in steps:
        if isinstance(step, tuple):
            jumping.merge(step[0], range(step[1]))
            walking.merge(step[0], range(step[1]))
        else:
            starved = jumping.advance(step)
            assert starved == sum(walking.pop() is None for _ in range(step))
        for name in ("remaining", "next_timestep", "starved_ticks", "fill"):
            assert getattr(jumping, name) == getattr(walking, name)


class QueueAgainstList(RuleBasedStateMachine):
    """The queue beside a list of (timestep, action) that applies the rules word for word."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: ActionQueue[str] = ActionQueue()
        self.model: list[tuple[int, str]] = []
        self.executed: list[int] = []
        self.starved = 0
        self.longest = 0
        self.labels = itertools.count()

    @rule(offset=st.integers(-25, 25), length=st.integers(0, 20))
    def merge(self, offset: int, length: int) -> None:
        newest = self.executed[-1] if self.executed else -1
        first_timestep = max(0, newest + offset)
        actions = [f"{first_timestep + i} of chunk {next(self.labels)}" for i in range(length)]
        fresh = [
            (first_timestep + i, a) for i, a in enumerate(actions) if first_timestep + i > newest
        ]

        assert self.queue.merge(first_timestep, actions) == len(fresh)

        self.model = fresh or self.model
        self.longest = max(self.longest, length)

    @rule()
    def pop(self) -> None:
        expected = self.tick()

        assert self.queue.pop() == expected

    @rule(ticks=st.integers(0, 30))
    def advance(self, ticks: int) -> None:
        before = self.starved
        for _ in range(ticks):
            self.tick()

        assert self.queue.advance(ticks) == self.starved - before

    def tick(self) -> str | None:
        if not self.model:
            self.starved += 1
            return None
        timestep, action = self.model.pop(0)
        self.executed.append(timestep)
        return action

    @invariant()
    def agrees(self) -> None:
        after = self.executed[-1] + 1 if self.executed else 0
        assert self.queue.remaining == len(self.model)
        assert self.queue.next_timestep == (self.model[0][0] if self.model else after)
        assert self.queue.starved_ticks == self.starved
        assert self.queue.longest_chunk == self.longest
        assert self.queue.fill == (len(self.model) / self.longest if self.longest else 0.0)

    @invariant()
    def never_backwards(self) -> None:
        assert all(a < b for a, b in itertools.pairwise(self.executed))


TestQueueAgainstList = QueueAgainstList.TestCase
