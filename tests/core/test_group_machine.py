"""Every formation in every shape keeps the scheduler's promises; and the check bites."""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.core.group_machine import GroupMachine

from takt.core.alarms import Alarms
from takt.core.launch import Launch
from takt.core.queue import Queue
from takt.core.request import Request
from takt.core.scheduler import Scheduler
from takt.core.trace import Setup
from takt.errors import InvariantError

NUM_EXAMPLES, NUM_STEPS = 50 if os.environ.get("CI") else 150, 30
"""CI draws the same examples every time, those who change the scheduler draw others: more of them
are worth their time there."""


@pytest.mark.slow
@pytest.mark.timeout(600)  # for a failure to shrink in; a pass takes seconds
class TestGroup(GroupMachine.TestCase):
    settings = settings(
        max_examples=NUM_EXAMPLES,
        stateful_step_count=NUM_STEPS,
        suppress_health_check=[HealthCheck.too_slow],
        deadline=None,
    )


class IgnoresPriority(Scheduler):
    def submit(self, request: Request, now: int) -> None:
        request.priority, kept = 0, request.priority
        super().submit(request, now)
        self._events[0] = self._events[0]._replace(priority=kept)  # type: ignore[call-arg]


class MovesForFree(Scheduler):
    def _begin_move(self, request: Request, source: int, now: int) -> None:
        del source
        self._get_ready(request, now)


class SharesNoLink(Scheduler):
    def _begin_move(self, request: Request, source: int, now: int) -> None:
        self._link_free_at = 0
        super()._begin_move(request, source, now)


class EndsAfterOneStep(Scheduler):
    def _leave(self, request: Request, launch: Launch, now: int, failed: bool) -> None:
        request.steps_left = 1
        super()._leave(request, launch, now, failed)


class ReckonsWithAllSteps(Scheduler):
    def _service_of(self, request: Request, queue: Queue) -> int:
        return queue.service[request.layout]


class RingsForAnybody(Alarms):
    """An alarm counts though its request has gone on."""

    def ring(self, now: int) -> list[tuple[int, Request, Queue]]:
        self._alarms = [
            (instant, seq, request.moves, request, queue)
            for instant, seq, _, request, queue in self._alarms
        ]
        return super().ring(now)


class CountsStaleEntries(Scheduler):
    """An alarm of an earlier wait makes a request yield."""

    def submit(self, request: Request, now: int) -> None:
        if not isinstance(self._yields, RingsForAnybody):
            self._yields = RingsForAnybody()
        super().submit(request, now)


class DenoisesAnywhere(Scheduler):
    """Every request is at home on device 0."""

    def _leave_prefix(self, request: Request, launch: Launch, now: int) -> None:
        super()._leave_prefix(request, launch._replace(lane=launch.lane._replace(device=0)), now)


FAULTS = [
    (IgnoresPriority, "queue order|discipline|earliest order"),
    (MovesForFree, "wrong outcomes"),
    (SharesNoLink, "wrong outcomes"),
    (EndsAfterOneStep, "wrong outcomes"),
    (ReckonsWithAllSteps, "queue order|hopeless|discipline"),
    (CountsStaleEntries, "queue order|hopeless|discipline|does not wait"),
    (DenoisesAnywhere, "wrong|queue order|does not wait"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "complaint"), FAULTS)
def test_the_machine_finds_a_fault(kind: type[Scheduler], complaint: str) -> None:
    assert_found(lambda setup: faulty(setup, kind), complaint)


def faulty(setup: Setup, kind: type[Scheduler]) -> Scheduler:
    scheduler = setup.scheduler()
    scheduler.__class__ = kind
    return scheduler


def assert_found(build: Callable[[Setup], Scheduler], complaint: str) -> None:
    class FaultyMachine(GroupMachine):
        def build(self, setup: Setup) -> Scheduler:
            return build(setup)

        def check_replay(self) -> None:
            """Nothing: the true scheduler, which replays, would differ from any faulty one."""

    budget = settings(
        max_examples=500,
        stateful_step_count=NUM_STEPS,
        phases=[Phase.generate],
        derandomize=True,  # whether a planted fault is found must not depend on luck
        suppress_health_check=[HealthCheck.too_slow],
        database=None,
        deadline=None,
        print_blob=False,
    )
    with pytest.raises((AssertionError, InvariantError, KeyError), match=complaint):
        run_state_machine_as_test(FaultyMachine, settings=budget)
