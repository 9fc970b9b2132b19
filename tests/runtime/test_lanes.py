"""Two threads that run launches: side by side, one at a time each, and never dead of a fault."""

import os
import threading
from collections.abc import Iterator
from queue import Queue

import numpy as np
import pytest
from tests.core.driving import model_of

from takt.core.launch import Lane, Launch
from takt.core.profile import Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.policies.interface import Placement
from takt.runtime.admission import open_row
from takt.runtime.lanes import HAND_OVER, CpuLanes
from takt.runtime.launches import Completed, Job
from takt.runtime.models import LoadedModel
from takt.testing.gateway import FakeGateway
from takt.testing.network import FakeNetwork, fake_model
from takt.units import SECOND, Nanos

TIMEOUT_S = 60


class Bench:
    """Lanes whose completions land in a queue, with the name of the thread that ran them."""

    def __init__(self, placement: Placement, tick: Nanos | None = None) -> None:
        self.completed: Queue[Completed] = Queue()
        self.threads: list[str] = []
        if tick is None:
            self.lanes = CpuLanes(placement, self.post)
        else:
            self.tick, self.now = tick, 0
            self.lanes = CpuLanes(placement, self.post, clock=self.clock)
        self.model = fake_model(model_of())
        self.gateway = FakeGateway()

    def post(self, completed: Completed) -> None:
        self.threads.append(threading.current_thread().name)
        self.completed.put(completed)

    def clock(self) -> Nanos:
        self.now += self.tick
        return self.now

    @property
    def network(self) -> FakeNetwork:
        assert isinstance(self.model.network, FakeNetwork)
        return self.model.network

    def start(self, stage: Stage, seq: int = 0, model: LoadedModel | None = None) -> None:
        loaded = model or self.model
        submit = self.gateway.arrive(loaded, 0, value=float(seq)).submit
        launch = Launch(Lane(0, stage), loaded.model.name, (seq,), 1, 0, 1)
        rows = (open_row(self.gateway, submit, loaded),)
        self.lanes.start(Job(launch=launch, model=loaded, rows=rows, kv_slots=(0,)))

    def next(self) -> Completed:
        return self.completed.get(timeout=TIMEOUT_S)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(Placement(kv_slots=4))
    yield made
    made.lanes.close()


def test_launches_run_in_the_lane_of_their_stage_and_are_reported(bench: Bench) -> None:
    bench.start(Stage.PREFIX, seq=3)
    prefix = bench.next()
    bench.start(Stage.DENOISE, seq=3)
    denoise = bench.next()

    assert prefix == Completed(Lane(0, Stage.PREFIX), {}, {})
    np.testing.assert_array_equal(denoise.chunks[3], np.full((3, 2), 3.0))


def test_a_lane_survives_a_launch_that_raises(bench: Bench) -> None:
    bench.network.faults[Stage.PREFIX] = ValueError("broken")
    bench.start(Stage.PREFIX, seq=1)
    failed = bench.next()
    bench.network.faults.clear()

    bench.start(Stage.PREFIX, seq=2)

    assert set(failed.failures) == {1}
    assert bench.next().failures == {}


def test_the_lanes_work_side_by_side(bench: Bench) -> None:
    met = threading.Barrier(2)

    thread = threading.Thread(
        target=bench.lanes.call, args=(Stage.PREFIX, lambda: met.wait(TIMEOUT_S))
    )
    thread.start()
    bench.lanes.call(Stage.DENOISE, lambda: met.wait(TIMEOUT_S))
    thread.join(TIMEOUT_S)

    assert not met.broken


def test_a_function_runs_between_two_launches_in_the_thread_of_its_lane(bench: Bench) -> None:
    names: list[str] = []

    bench.lanes.call(Stage.DENOISE, lambda: names.append(threading.current_thread().name))

    assert names == ["lane-denoise"]


def test_what_a_function_raises_is_raised_where_it_was_asked_for(bench: Bench) -> None:
    def fail() -> None:
        raise ConfigError("no such core")

    with pytest.raises(ConfigError, match="no such core"):
        bench.lanes.call(Stage.PREFIX, fail)
    bench.lanes.call(Stage.PREFIX, lambda: None)


def test_each_lane_keeps_to_its_cores() -> None:
    core = min(os.sched_getaffinity(0))
    bench = Bench(Placement(kv_slots=4, prefix_cores=(core,), denoise_cores=(core,)))
    seen: list[set[int]] = []

    bench.lanes.call(Stage.PREFIX, lambda: seen.append(os.sched_getaffinity(0)))
    bench.lanes.close()

    assert seen == [{core}]


def test_a_core_that_may_not_be_used_is_refused() -> None:
    foreign = max(os.sched_getaffinity(0)) + 1000

    with pytest.raises(ConfigError, match=rf"cores \[{foreign}\]"):
        CpuLanes(Placement(kv_slots=1, prefix_cores=(foreign,)), lambda _: None)


def test_a_launch_is_not_over_before_its_least_time() -> None:
    ticks = iter(range(0, 100 * SECOND, SECOND // 1000))
    completed: Queue[Completed] = Queue()
    lanes = CpuLanes(Placement(kv_slots=1), completed.put, clock=lambda: next(ticks))
    bench = Bench(Placement(kv_slots=1))
    bench.lanes.close()
    bench.lanes = lanes
    bench.network.wait = 3_000_000  # the clock shows 1 ms more each time: 2 ms are waited

    bench.start(Stage.PREFIX)
    completed.get(timeout=TIMEOUT_S)
    lanes.close()

    assert next(ticks) == 2_000_000, "the clock was read at the start and after the launch"


def test_closing_cuts_a_waiting_launch_short_and_says_nothing_of_it(bench: Bench) -> None:
    bench.network.wait = 3600 * SECOND
    bench.start(Stage.PREFIX)

    bench.lanes.close()

    assert bench.completed.empty()
    assert "lane-prefix" not in [thread.name for thread in threading.enumerate()]


HERE = threading.main_thread().name


def measured(solo: Nanos) -> LoadedModel:
    """A model whose prefix launch of one row was measured to take this long."""
    model = model_of()
    return fake_model(model, solo={Work(model.architecture, Stage.PREFIX, 0, 1, 1): solo})


def runs_of(bench: Bench, model: LoadedModel, count: int) -> list[str]:
    """Names of the threads that run the launches of a model, one after the other."""
    before = len(bench.threads)
    for _ in range(count):
        bench.start(Stage.PREFIX, model=model)
        bench.next()
    return bench.threads[before:]


@pytest.mark.parametrize(
    ("solo", "thread"), [(HAND_OVER - 1, HERE), (HAND_OVER, "lane-prefix"), (None, "lane-prefix")]
)
def test_only_a_launch_known_to_be_brief_is_run_by_who_starts_it(
    bench: Bench, solo: Nanos | None, thread: str
) -> None:
    model = fake_model(model_of()) if solo is None else measured(solo)

    assert runs_of(bench, model, 1) == [thread]


def test_a_launch_that_turns_out_to_be_long_goes_to_its_lane_and_comes_back_when_it_is_brief() -> (
    None
):
    bench = Bench(Placement(kv_slots=4), tick=2 * HAND_OVER)
    model = measured(HAND_OVER // 2)

    growing = runs_of(bench, model, 12)
    bench.tick = HAND_OVER // 4
    shrinking = runs_of(bench, model, 24)
    bench.lanes.close()

    assert growing[0] == shrinking[-1] == HERE
    assert growing[-1] == shrinking[0] == "lane-prefix"


def test_one_slow_run_of_a_brief_launch_changes_nothing() -> None:
    bench = Bench(Placement(kv_slots=4), tick=HAND_OVER // 4)
    model = measured(HAND_OVER // 4)
    bench.tick = 4 * HAND_OVER
    runs_of(bench, model, 1)
    bench.tick = HAND_OVER // 4

    after = runs_of(bench, model, 1)
    bench.lanes.close()

    assert after == [HERE]


def test_a_brief_launch_waits_for_what_runs_in_its_lane(bench: Bench) -> None:
    entered, leave = threading.Event(), threading.Event()

    def occupy() -> None:
        entered.set()
        leave.wait(TIMEOUT_S)

    thread = threading.Thread(target=bench.lanes.call, args=(Stage.PREFIX, occupy))
    thread.start()
    entered.wait(TIMEOUT_S)
    bench.start(Stage.PREFIX, model=measured(1))
    is_first = bench.completed.empty()
    leave.set()
    bench.next()
    thread.join(TIMEOUT_S)

    assert is_first
    assert bench.threads == ["lane-prefix"]


def test_a_brief_launch_of_the_other_stage_does_not_wait(bench: Bench) -> None:
    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(
        target=bench.lanes.call,
        args=(Stage.DENOISE, lambda: (entered.set(), leave.wait(TIMEOUT_S))),
    )
    thread.start()
    entered.wait(TIMEOUT_S)

    ran = runs_of(bench, measured(1), 1)
    leave.set()
    thread.join(TIMEOUT_S)

    assert ran == [HERE]
