"""Paced lanes end every launch when the simulator's cost model says, to the nanosecond."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.core.driving import UNITS
from tests.runtime.pacing import Bench
from tests.twin.test_twin import PROFILE, happenings, setups
from tests.twin.twins import Happenings, simulated, worked

from takt.core.launch import Lane
from takt.core.profile import CoRun, Profile, Work
from takt.core.request import Stage
from takt.core.trace import Setup
from takt.runtime.launches import Completed, Job
from takt.runtime.paced_lanes import PacedLanes
from takt.testing.lanes import FakeLanes

# Times of PROFILE are about ten; a scale makes instants fall between the ends as well.
SCALE = 97

starts = st.lists(
    st.tuples(st.sampled_from(Stage), st.integers(0, 12 * SCALE), st.sampled_from([1, 4])),
    max_size=30,
)
lags = st.lists(st.integers(0, 3 * SCALE), min_size=1, max_size=5)


def scaled() -> Profile:
    data = PROFILE.to_json()
    rows: list[list[int]] = data["solo"]  # type: ignore[assignment]
    return Profile.from_json({**data, "solo": [[*row[:5], row[5] * SCALE] for row in rows]})


Log = list[tuple[int, Lane, int | None]]
"""When an end was noticed, whose it was, and when the next one was then to come."""


def play(
    device: "Direct | Paced", starts: Sequence[tuple[Stage, int, int]], lags: Iterator[int]
) -> Log:
    """Let each lane run its launches, each some time after the one before; notice ends late."""
    waiting = {stage: [s[1:] for s in starts if s[0] is stage] for stage in Stage}
    ready = {stage: waiting[stage][0][0] for stage in Stage if waiting[stage]}
    now, log = 0, []
    while True:
        end = device.next_end()
        instants = [*ready.values(), *([] if end is None else [end + next(lags)])]
        if not instants:
            return log
        now = max(now, min(instants))
        for lane in device.ended(now):
            log.append((now, lane, device.next_end()))
            if waiting[lane.stage]:
                ready[lane.stage] = now + waiting[lane.stage][0][0]
        for stage in [stage for stage, instant in ready.items() if instant <= now]:
            _, size = waiting[stage].pop(0)
            del ready[stage]
            device.start(Work("pi0", stage, 0, size, UNITS), now)


class Direct:
    """The cost model of the simulator, asked directly."""

    def __init__(self) -> None:
        self.running: CoRun[Lane] = CoRun(scaled())

    def start(self, work: Work, now: int) -> None:
        list(self.ended(now))
        self.running.start(Lane(0, work.stage), work, now)

    def next_end(self) -> int | None:
        end = self.running.next_end()
        return None if end is None else end[0]

    def ended(self, now: int) -> list[Lane]:
        ended: list[Lane] = []
        while (end := self.running.next_end()) is not None and end[0] <= now:
            self.running.finish(end[1], end[0])
            ended.append(end[1])
        return ended


class Paced:
    """Paced lanes and their timer."""

    def __init__(self) -> None:
        self.bench = Bench(scaled())

    def start(self, work: Work, now: int) -> None:
        self.bench.clock.advance(now - self.bench.clock.now())
        self.bench.start(work)

    def next_end(self) -> int | None:
        return self.bench.timer.instant

    def ended(self, now: int) -> list[Lane]:
        self.bench.clock.advance(now - self.bench.clock.now())
        return [completed.lane for completed in self.bench.take_ended()]


def cycle(lags: Sequence[int]) -> Iterator[int]:
    while True:
        yield from lags


@given(starts=starts)
def test_launches_end_when_the_cost_model_says(starts: list[tuple[Stage, int, int]]) -> None:
    assert play(Paced(), starts, cycle([0])) == play(Direct(), starts, cycle([0]))


@given(starts=starts, lags=lags)
def test_a_loop_that_wakes_late_makes_no_launch_longer(
    starts: list[tuple[Stage, int, int]], lags: list[int]
) -> None:
    assert play(Paced(), starts, cycle(lags)) == play(Direct(), starts, cycle(lags))


class PacedTwin(FakeLanes):
    """Paced lanes that the twin's worker drives like its fake ones."""

    def __init__(self, profile: Profile, now: Callable[[], int], **_: object) -> None:
        self._ended: list[Completed] = []
        self._lanes = PacedLanes(self._ended.append, _NoTimer(), clock=now)
        self._lanes.pace(profile)

    def start(self, job: Job) -> None:
        self._lanes.start(job)

    def next_end(self) -> int | None:
        return self._lanes.next_end()

    def take_ended(self) -> list[Completed]:
        self._lanes.take_ended()
        ended = [*self._ended]
        self._ended.clear()
        return ended


class _NoTimer:
    def set(self, instant: int | None) -> None:
        """The twin asks for the next end."""


@given(setup=setups, happenings=happenings)
def test_a_worker_on_paced_lanes_decides_as_the_simulator(
    setup: Setup, happenings: Happenings
) -> None:
    unfailing = replace(happenings, failing={})

    trace = worked(setup, unfailing, lanes_class=PacedTwin)

    assert trace == simulated(setup, unfailing)


class Careless(Paced):
    """Gives a launch that was noticed late to its co-runner as company until then."""

    def ended(self, now: int) -> list[Lane]:
        running = self.bench.lanes._running
        if running is not None and self.next_end() is not None:
            running.finish = lambda key, now, late=now: CoRun.finish(running, key, late)
        return super().ended(now)


def test_the_comparison_bites() -> None:
    both = [(Stage.PREFIX, 0, 4), (Stage.DENOISE, 0, 4)]

    assert play(Paced(), both, cycle([50])) == play(Direct(), both, cycle([50]))
    assert play(Careless(), both, cycle([50])) != play(Direct(), both, cycle([50]))
