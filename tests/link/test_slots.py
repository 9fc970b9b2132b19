"""The table of slots: legal moves, reuse only when nobody touches the bytes, no crossed chunk."""

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from takt.errors import UsageError
from takt.link.messages import SlotRef
from takt.link.slots import ALLOWED, Drop, SlotState, SlotTable

EPOCH = 0xABCDEF
LINK, OTHER_LINK = 1, 2


def table_of(num_slots: int = 1) -> SlotTable[str]:
    return SlotTable(num_slots, epoch=EPOCH)


def claimed(table: SlotTable[str], ticket: str = "robot") -> SlotRef:
    ref = table.claim(ticket)
    assert ref is not None
    return ref


def submitted(table: SlotTable[str], ticket: str = "robot", link: int = LINK) -> SlotRef:
    ref = claimed(table, ticket)
    assert table.submit(ref, link=link)
    return ref


def state_of(table: SlotTable[str]) -> SlotState:
    return next(state for state, count in table.census().items() if count)


def test_every_state_can_be_left_and_every_move_leads_to_a_state() -> None:
    assert set(ALLOWED) == set(SlotState)
    assert all(ALLOWED.values())


def test_a_request_goes_through_a_slot_and_the_slot_is_free_again() -> None:
    table = table_of()

    ref = submitted(table)
    table.mark_running(ref, link=LINK)
    running = state_of(table)
    ticket = table.reply(ref, link=LINK)

    assert running is SlotState.RUNNING
    assert ticket == "robot"
    assert table.num_free == 1


def test_without_a_free_slot_nothing_is_claimed() -> None:
    table = table_of()
    claimed(table)

    assert table.claim("second") is None


def test_the_generation_rises_at_every_reuse() -> None:
    table = table_of()
    first = submitted(table)
    table.reply(first, link=LINK)

    assert claimed(table).generation == first.generation + 1


def test_the_slot_freed_longest_ago_is_used_first() -> None:
    table = table_of(3)
    refs = [submitted(table) for _ in range(3)]
    for number in (1, 0, 2):
        table.reply(refs[number], link=LINK)

    assert [claimed(table).slot for _ in range(3)] == [1, 0, 2]


def test_a_second_reply_is_dropped() -> None:
    table = table_of()
    ref = submitted(table)
    table.reply(ref, link=LINK)

    assert table.reply(ref, link=LINK) is None
    assert table.dropped == {Drop.STATE: 1}


def test_a_late_reply_for_a_slot_in_use_again_is_dropped() -> None:
    table = table_of()
    late = submitted(table, "first")
    table.cancel(late)
    table.release(late, link=LINK)
    submitted(table, "second")

    assert table.reply(late, link=LINK) is None
    assert table.dropped == {Drop.GENERATION: 1}


def test_replies_to_another_life_of_the_gateway_are_dropped() -> None:
    table = table_of()
    ref = submitted(table)

    assert table.reply(SlotRef(EPOCH + 1, ref.slot, ref.generation), link=LINK) is None
    assert table.dropped == {Drop.EPOCH: 1}


def test_replies_for_slots_that_do_not_exist_are_dropped() -> None:
    table = table_of()

    assert table.reply(SlotRef(EPOCH, 1, 1), link=LINK) is None
    assert table.dropped == {Drop.SLOT: 1}


def test_a_worker_cannot_answer_for_another() -> None:
    table = table_of()
    ref = submitted(table)

    assert table.reply(ref, link=OTHER_LINK) is None
    assert table.dropped == {Drop.LINK: 1}
    assert table.reply(ref, link=LINK) == "robot"


def test_a_cancelled_slot_is_not_reused_while_the_worker_reads_it() -> None:
    table = table_of()
    ref = submitted(table)

    informed = table.cancel(ref)
    waiting = state_of(table)
    table.release(ref, link=LINK)

    assert informed == LINK
    assert waiting is SlotState.ABANDONED
    assert table.num_free == 1


def test_a_cancelled_slot_whose_bytes_were_released_already_is_free_at_once() -> None:
    table = table_of()
    ref = submitted(table)
    table.release(ref, link=LINK)
    assert state_of(table) is SlotState.SUBMITTED

    assert table.cancel(ref) == LINK
    assert table.num_free == 1


def test_a_reply_to_a_cancelled_request_frees_the_slot_and_reaches_nobody() -> None:
    table = table_of()
    ref = submitted(table)
    table.cancel(ref)

    assert table.reply(ref, link=LINK) is None
    assert table.num_free == 1


def test_a_refusal_given_while_the_worker_still_reads_keeps_the_slot() -> None:
    table = table_of()
    ref = submitted(table)

    ticket = table.reply(ref, link=LINK, still_reading=True)
    kept = state_of(table)
    table.release(ref, link=LINK)

    assert ticket == "robot"
    assert kept is SlotState.REPLIED
    assert table.num_free == 1


def test_a_request_cancelled_while_it_is_written_is_not_sent() -> None:
    table = table_of()
    ref = claimed(table)

    assert table.cancel(ref) is None
    assert table.num_free == 0, "the writing thread still touches the bytes"
    assert not table.submit(ref, link=LINK)
    assert table.num_free == 1


def test_a_writer_that_gives_up_frees_the_slot() -> None:
    table = table_of()

    table.withdraw(claimed(table))

    assert table.num_free == 1


def test_a_lost_link_hands_back_its_requests_and_another_worker_takes_them_over() -> None:
    table = table_of(3)
    kept = submitted(table, "kept", link=OTHER_LINK)
    waiting, running = submitted(table, "waiting"), submitted(table, "running")
    table.mark_running(running, link=LINK)

    orphans = table.lose_link(LINK)

    assert orphans == [(waiting, "waiting"), (running, "running")]
    assert table.submit(waiting, link=OTHER_LINK)
    assert table.cancel(running) is None
    assert table.reply(waiting, link=OTHER_LINK) == "waiting"
    assert table.reply(kept, link=OTHER_LINK) == "kept"
    assert table.num_free == 3


def test_a_late_reply_of_a_lost_worker_does_not_stand_in_for_its_successor() -> None:
    table = table_of()
    ref = submitted(table)
    table.lose_link(LINK)
    table.submit(ref, link=OTHER_LINK)

    assert table.reply(ref, link=LINK) is None
    assert table.reply(ref, link=OTHER_LINK) == "robot"


def test_a_lost_link_frees_what_was_cancelled() -> None:
    table = table_of()
    table.cancel(submitted(table))

    assert table.lose_link(LINK) == []
    assert table.num_free == 1


def test_cancelling_what_is_settled_does_nothing() -> None:
    table = table_of()
    ref = submitted(table)
    table.reply(ref, link=LINK)
    submitted(table, "next")

    assert table.cancel(ref) is None
    assert state_of(table) is SlotState.SUBMITTED


def test_submitting_twice_is_the_gateways_mistake() -> None:
    table = table_of()
    ref = submitted(table)

    with pytest.raises(UsageError, match="is not WRITING or ORPHANED"):
        table.submit(ref, link=LINK)


def test_tables_without_slots_and_requests_without_tickets_are_refused() -> None:
    with pytest.raises(UsageError, match="num_slots"):
        table_of(0)
    with pytest.raises(UsageError, match="ticket"):
        SlotTable[str | None](1, epoch=EPOCH).claim(None)


@dataclass(slots=True)
class Job:
    """What a worker has of one Submit."""

    ref: SlotRef
    link: int
    reads: bool = True
    content: int | None = None
    """The observation it read, once it has."""


def by_slot(refs: Iterable[SlotRef]) -> list[SlotRef]:
    return sorted(refs, key=lambda ref: ref.slot)


class Link(RuleBasedStateMachine):
    """A gateway, two slots, and workers that read, answer, repeat themselves and die.

    ``memory`` models the arena: which observation's bytes a slot holds. A worker computes its
    chunk from what it read there, so a chunk is right only for the request that it is equal to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table: SlotTable[int] = SlotTable(2, epoch=EPOCH)
        self.memory: dict[int, int] = {}
        self.observations = 0
        self.writing: dict[SlotRef, int] = {}
        self.orphans: dict[SlotRef, int] = {}
        self.live: dict[SlotRef, int] = {}
        self.outcomes: dict[int, str] = {}
        self.jobs: list[Job] = []
        # Replies sent and not received: they arrive in any order, twice, or after a death.
        self.said: list[tuple[Job, int | None, bool]] = []
        self.links = [1, 2]
        self.next_link = 3

    def settle(self, ref: SlotRef, outcome: str) -> None:
        observation = self.live.pop(ref)
        assert observation not in self.outcomes, "a second outcome"
        self.outcomes[observation] = outcome
        self.orphans.pop(ref, None)

    @rule()
    def write(self) -> None:
        ref = self.table.claim(self.observations)
        if ref is None:
            return
        assert all(other.slot != ref.slot for other in self.writing), "two writers"
        assert not [
            job
            for job in self.jobs
            if job.reads and job.ref.slot == ref.slot and job.link in self.links
        ], "written while a worker reads"
        self.memory[ref.slot] = self.observations
        self.writing[ref] = self.live[ref] = self.observations
        self.observations += 1

    @precondition(lambda self: self.writing or self.orphans)
    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        ref = data.draw(st.sampled_from(by_slot([*self.writing, *self.orphans])))
        link = data.draw(st.sampled_from(self.links))
        observation = self.writing.pop(ref, None)
        self.orphans.pop(ref, None)
        if self.table.submit(ref, link=link):
            self.jobs.append(Job(ref, link))
        else:
            assert observation is not None
            assert self.outcomes[observation] == "cancelled"

    @precondition(lambda self: self.writing)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        ref = data.draw(st.sampled_from(by_slot(self.writing)))
        del self.writing[ref]
        self.table.withdraw(ref)
        if ref in self.live:
            self.settle(ref, "withdrawn")

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        ref = data.draw(st.sampled_from(by_slot(self.live)))
        self.table.cancel(ref)
        self.settle(ref, "cancelled")

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        if job.reads and job.content is None:
            job.content = self.memory[job.ref.slot]
            self.table.mark_running(job.ref, link=job.link)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        job.reads = False
        self.table.release(job.ref, link=job.link)

    @precondition(lambda self: any(job.content is not None for job in self.jobs))
    @rule(data=st.data(), still_reading=st.booleans())
    def answer(self, data: st.DataObject, still_reading: bool) -> None:
        job = data.draw(st.sampled_from([job for job in self.jobs if job.content is not None]))
        job.reads = job.reads and still_reading
        self.said.append((job, job.content, job.reads))

    @precondition(lambda self: self.said)
    @rule(data=st.data(), again=st.booleans())
    def receive(self, data: st.DataObject, again: bool) -> None:
        index = data.draw(st.integers(0, len(self.said) - 1))
        job, chunk, reads = self.said[index] if again else self.said.pop(index)
        ticket = self.table.reply(job.ref, link=job.link, still_reading=reads)
        if ticket is not None:
            assert ticket == chunk, "a chunk reached a request it was not computed for"
            assert job.link in self.links, "a worker given up answered for its successor"
            self.settle(job.ref, "answered")

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(self.links))
        self.links[self.links.index(link)] = self.next_link
        self.next_link += 1
        for ref, ticket in self.table.lose_link(link):
            assert self.live[ref] == ticket == self.memory[ref.slot]
            self.orphans[ref] = ticket

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def answer_another_life(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        foreign = SlotRef(EPOCH + 1, job.ref.slot, job.ref.generation)
        assert self.table.reply(foreign, link=job.link) is None

    @rule(slot=st.integers(0, 4))
    def answer_what_was_never_asked(self, slot: int) -> None:
        assert self.table.reply(SlotRef(EPOCH, slot, 10**6), link=self.links[0]) is None

    @rule(data=st.data())
    def serve_one_from_start_to_answer(self, data: st.DataObject) -> None:
        ref = self.table.claim(self.observations)
        if ref is None:
            return
        self.memory[ref.slot] = self.live[ref] = self.observations
        self.observations += 1
        job = Job(ref, data.draw(st.sampled_from(self.links)), content=self.memory[ref.slot])
        assert self.table.submit(ref, link=job.link)
        job.reads = False
        self.jobs.append(job)
        self.said.append((job, job.content, False))

    @invariant()
    def every_observation_is_live_or_has_its_outcome(self) -> None:
        assert len(self.live) + len(self.outcomes) == self.observations
        assert self.table.num_free == self.table.census()[SlotState.FREE]

    def teardown(self) -> None:
        for ref in by_slot(self.live):
            self.table.cancel(ref)
        for ref in by_slot(self.writing):
            self.table.withdraw(ref)
        for link in self.links:
            assert self.table.lose_link(link) == []
        assert self.table.num_free == 2, "a slot leaked"


TestLink = Link.TestCase
TestLink.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
