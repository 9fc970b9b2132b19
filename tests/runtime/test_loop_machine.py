"""Every request gets its one answer whatever gateways and lanes do; and the check bites.

Each fault below is planted in a loop of its own, and the machine must find it.
"""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.runtime.loop_machine import LoopMachine

from takt.core.timeline import Outcome as Ending
from takt.link.messages import Outcome, Released, WorkerMessage
from takt.runtime.admission import RowSource
from takt.runtime.launches import Completed
from takt.runtime.loop import WorkerLoop


@pytest.fixture(autouse=True)
def no_tracebacks() -> Iterator[None]:
    """Networks are broken thousands of times; a log of it takes longer than the rest."""
    log = logging.getLogger("takt.runtime.launches")
    log.disabled = True
    yield
    log.disabled = False


@pytest.mark.slow
class TestLoop(LoopMachine.TestCase):
    settings = settings(max_examples=60, stateful_step_count=40)


class ReleasesWhileALaneReads(WorkerLoop):
    def _end(self, ending: Ending) -> None:
        request = self._requests[ending.seq]
        super()._end(ending)
        if request.has_ended:
            released = Released(ref=request.held.ref)
            self._settle(request.source, request.held.ref, released, Outcome.CANCELLED)


class NeverReleases(WorkerLoop):
    def _complete(self, completed: Completed, now: int) -> None:
        for seq in self._running[completed.lane].launch.requests:
            self._requests[seq].has_ended = False
        super()._complete(completed, now)


class FreesACacheSlotTwice(WorkerLoop):
    def _forget(self, seq: int, last: WorkerMessage, outcome: Outcome) -> None:
        request = self._requests[seq]
        super()._forget(seq, last, outcome)
        self._free_kv[request.model].append(request.kv_slot)


class ForgetsWhoWasHeldBack(WorkerLoop):
    def _change_setup(self, now: int) -> None:
        if self._next is not None and self._is_quiet:
            self._held_back = []
        super()._change_setup(now)


class TalksToTheDead(WorkerLoop):
    def _lose(self, source: RowSource, now: int) -> None:
        link = self._links.get(source)
        super()._lose(source, now)
        if link is not None:
            self._links[source] = link


@pytest.mark.slow
@pytest.mark.parametrize(
    "faulty",
    [
        ReleasesWhileALaneReads,
        NeverReleases,
        FreesACacheSlotTwice,
        ForgetsWhoWasHeldBack,
        TalksToTheDead,
    ],
)
def test_the_machine_finds_a_planted_fault(faulty: type[WorkerLoop]) -> None:
    class Machine(LoopMachine):
        loop_class = faulty

    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=400,
                stateful_step_count=40,
                database=None,
                derandomize=True,
                report_multiple_bugs=False,
                phases=[Phase.generate],
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            ),
        )
