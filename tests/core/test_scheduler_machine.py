"""The scheduler keeps its promises whatever robots, clients and drivers do; and the check bites.

The faults below are the plausible ones: a rule left out, a comparison off by one, an order that
holds only as long as nobody is late. Each is planted in a scheduler of its own, and the machine
must find it. A hundred examples are nearly always enough.
"""

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.core.scheduler_machine import SchedulerMachine

from takt.core.batching import View
from takt.core.disciplines import DISCIPLINES
from takt.core.formations import FORMATIONS, Formation
from takt.core.group import Group
from takt.core.launch import Decision, Lane, Launch
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.queue import Queue
from takt.core.request import Request, Stage
from takt.core.scheduler import Scheduler
from takt.core.trace import Setup
from takt.errors import InvariantError

NUM_EXAMPLES, NUM_EXAMPLES_FOR_A_FAULT, NUM_STEPS = 40 if os.environ.get("CI") else 100, 500, 40
"""CI draws the same examples every time, those who change the scheduler draw others: more of them
are worth their time there."""


@pytest.mark.slow
@pytest.mark.timeout(600)  # for a failure to shrink in; a pass takes seconds
class TestScheduler(SchedulerMachine.TestCase):
    settings = settings(max_examples=NUM_EXAMPLES, stateful_step_count=NUM_STEPS)


# Faults of the bookkeeping


class NeverExpires(Scheduler):
    def _expire(self, now: int) -> None:
        del now


class ExpiresOneTooLate(Scheduler):
    def _expire(self, now: int) -> None:
        super()._expire(now - 1)


class StartsWhatExpiredInItsPrefix(Scheduler):
    def _wait(self, request: Request, queue: Queue, now: int) -> None:
        super()._wait(request, queue, min(now, request.expires - 1))


class NobodyYields(Scheduler):
    def _rerank(self, now: int) -> None:
        del now


class YieldsOneTooLate(Scheduler):
    def _rerank(self, now: int) -> None:
        super()._rerank(now - 1)


class NobodyRegains(Scheduler):
    def _may_regain(self, request: Request, queue: Queue, now: int) -> bool:
        return False


class ReckonsWithoutTheDenoiseStage(Scheduler):
    def _service_of(self, request: Request, queue: Queue) -> int:
        denoise = self._queues[Stage.DENOISE][request.model].service[request.layout]
        return super()._service_of(request, queue) - denoise


class NothingIsSuperseded(Scheduler):
    def submit(self, request: Request, now: int) -> None:
        self._newest_of.clear()
        super().submit(request, now)


class FailsTheWholeBatch(Scheduler):
    def finish(self, lane: Lane, now: int, failed: Collection[int] = ()) -> None:
        everybody = self._view.running[lane].requests
        super().finish(lane, now, everybody if failed else ())


class ForgetsTheCancelled(Scheduler):
    def cancel(self, seq: int, now: int) -> None:
        super().cancel(seq, now)
        self._events = [event for event in self._events if type(event).__name__ != "Ended"]


class CancelsOnlyWhatWaits(Scheduler):
    def cancel(self, seq: int, now: int) -> None:
        request = self._live.get(seq)
        is_running = request is not None and "ING" in request.phase.name
        super().cancel(-1 if is_running else seq, now)


class NeverAsksToBeWoken(Scheduler):
    def _wake_at(self, asked: int | None) -> int | None:
        return asked


class CountsNoTurns(Scheduler):
    def _start(self, launch: Launch, now: int) -> None:
        super()._start(launch, now)
        self._queues[launch.lane.stage][launch.model].turn = 0


class OverlapsLanes(Scheduler):
    """Its formation sees idle lanes only, and it does not mind."""

    def _start(self, launch: Launch, now: int) -> None:
        self._view.running.pop(launch.lane, None)
        super()._start(launch, now)


# Faults of a formation


@dataclass(frozen=True, slots=True)
class Faulty:
    """A formation that sees or says something else than the true one."""

    true: Formation
    seen: Callable[[View], View] = lambda view: view
    said: Callable[[View, Launch], Launch] = lambda _, launch: launch

    @property
    def group(self) -> Group:
        return self.true.group

    def expected(self, profile: Profile, model: Model, layout: int) -> tuple[int, int]:
        return self.true.expected(profile, model, layout)

    def decide(self, view: View, now: int) -> Decision:
        decision = self.true.decide(self.seen(view), now)
        return decision._replace(
            launches=tuple(self.said(view, launch) for launch in decision.launches),
        )


def first_come_first_served(view: View) -> View:
    """Queues in the order of arrival."""

    def in_order(queue: Queue) -> Queue:
        copy = Queue(queue.model, queue.stage)
        copy.turn = queue.turn
        copy.feasible = sorted(queue.feasible, key=lambda entry: entry[1])
        copy.hopeless = sorted(queue.hopeless, key=lambda entry: entry[1])
        return copy

    prefix, denoise = view.queues
    return replace(view, queues=(tuple(map(in_order, prefix)), tuple(map(in_order, denoise))))


def one_rank(view: View) -> View:
    """The hopeless stand behind the feasible of their model, and count like them."""

    def merged(queue: Queue) -> Queue:
        copy = Queue(queue.model, queue.stage)
        copy.turn = queue.turn
        copy.feasible = queue.feasible + queue.hopeless
        return copy

    prefix, denoise = view.queues
    return replace(view, queues=(tuple(map(merged, prefix)), tuple(map(merged, denoise))))


def first_model_first(view: View) -> View:
    return replace(view, discipline=lambda queue: 0)


def all_lanes_idle(view: View) -> View:
    return replace(view, running={})


def cheapest_layout(view: View, launch: Launch) -> Launch:
    del view
    return launch._replace(layout=0)


def exact_size(view: View, launch: Launch) -> Launch:
    """A size for the rows at hand, captured or not."""
    del view
    return launch._replace(size=len(launch.requests))


def whole_device(view: View, launch: Launch) -> Launch:
    return launch._replace(share=view.profile.units)


def guest_of_another_model(view: View, launch: Launch) -> Launch:
    """One more row, of whichever model has somebody waiting."""
    guests = [
        entry[1]
        for queue in view.queues[launch.lane.stage]
        if queue.model.name != launch.model
        for entry in queue.feasible
    ]
    return launch._replace(requests=(*launch.requests, *guests[:1]))


OUTCOMES, RANKS = "wrong outcomes", "queue order|a hopeless request|discipline"
FAULTY_SCHEDULERS = [
    (NeverExpires, OUTCOMES),
    (ExpiresOneTooLate, OUTCOMES),
    (StartsWhatExpiredInItsPrefix, OUTCOMES),
    (NobodyYields, RANKS),
    (YieldsOneTooLate, RANKS),
    (NobodyRegains, RANKS),
    (ReckonsWithoutTheDenoiseStage, RANKS),
    (NothingIsSuperseded, OUTCOMES),
    (FailsTheWholeBatch, OUTCOMES),
    (ForgetsTheCancelled, OUTCOMES),
    (CancelsOnlyWhatWaits, OUTCOMES),
    (NeverAsksToBeWoken, "wrong instant to wake"),
    (CountsNoTurns, "discipline"),
]
FAULTY_VIEWS = [
    (first_come_first_served, RANKS),
    (one_rank, RANKS),
    (first_model_first, "discipline"),
]
FAULTY_LAUNCHES = [
    (cheapest_layout, "captured layout"),
    (exact_size, "captured size"),
    (whole_device, "best share"),
    (guest_of_another_model, "queue order|not the head"),
]


def scheduler_with(
    setup: Setup,
    kind: type[Scheduler] = Scheduler,
    change: Callable[[Formation], Formation] = lambda true: true,
) -> Scheduler:
    """A scheduler as ``setup`` says but for its class and its formation."""
    return kind(
        setup.models,
        setup.profile,
        change(FORMATIONS[setup.formation]()),
        DISCIPLINES[setup.discipline],
        lateness=setup.lateness,
    )


def assert_found(build: Callable[[Setup], Scheduler], complaint: str) -> None:
    class FaultyMachine(SchedulerMachine):
        def build(self, setup: Setup) -> Scheduler:
            return build(setup)

        def check_replay(self) -> None:
            """Nothing: the true scheduler, which replays, would differ from any faulty one."""

    budget = settings(
        max_examples=NUM_EXAMPLES_FOR_A_FAULT,
        stateful_step_count=NUM_STEPS,
        phases=[Phase.generate],
        derandomize=True,  # whether a planted fault is found must not depend on luck
        suppress_health_check=[HealthCheck.too_slow],
        database=None,
        deadline=None,
        print_blob=False,
    )
    with pytest.raises((AssertionError, InvariantError), match=complaint):
        run_state_machine_as_test(FaultyMachine, settings=budget)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "complaint"), FAULTY_SCHEDULERS)
def test_the_machine_finds_a_fault_of_the_bookkeeping(
    kind: type[Scheduler], complaint: str
) -> None:
    assert_found(lambda setup: scheduler_with(setup, kind), complaint)


@pytest.mark.slow
@pytest.mark.parametrize(("seen", "complaint"), FAULTY_VIEWS)
def test_the_machine_finds_a_formation_that_sees_the_queues_wrongly(
    seen: Callable[[View], View], complaint: str
) -> None:
    assert_found(
        lambda setup: scheduler_with(setup, change=lambda true: Faulty(true, seen=seen)),
        complaint,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("said", "complaint"), FAULTY_LAUNCHES)
def test_the_machine_finds_a_formation_that_asks_for_a_wrong_launch(
    said: Callable[[View, Launch], Launch], complaint: str
) -> None:
    assert_found(
        lambda setup: scheduler_with(setup, change=lambda true: Faulty(true, said=said)),
        complaint,
    )


@pytest.mark.slow
def test_the_machine_finds_lanes_that_overlap_themselves() -> None:
    assert_found(
        lambda setup: scheduler_with(
            setup, OverlapsLanes, lambda true: Faulty(true, seen=all_lanes_idle)
        ),
        "overlaps itself|wrong lanes",
    )
