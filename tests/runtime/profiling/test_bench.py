"""Launches are measured on lanes as the cost model says they take."""

from collections import deque

import pytest

from takt.core.model import Model
from takt.core.profile import Profile, Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.runtime.launches import Lanes
from takt.runtime.models import LoadedModel
from takt.runtime.profiling.bench import Bench, End
from takt.runtime.profiling.median import Enough
from takt.testing.clock import ManualClock
from takt.testing.lanes import FakeLanes
from takt.testing.network import FakeNetwork, fake_model
from takt.units import ms

MODEL = Model(name="pi0", architecture="pi0", slo=ms(100), prefix_sizes=(2,), denoise_sizes=(1, 4))
PREFIX = Work("pi0", Stage.PREFIX, 0, 2, 4)
HELD = PREFIX._replace(share=2)
DENOISE = Work("pi0", Stage.DENOISE, 0, 4, 4)
PROFILE = Profile(
    units=4,
    shares=(2, 4),
    solo={PREFIX: ms(30), HELD: ms(50), DENOISE: ms(8)},
    slowdown={
        (PREFIX, DENOISE): 1.25,
        (DENOISE, PREFIX): 2.0,
        (HELD, DENOISE): 1.0,
        (DENOISE, HELD): 1.1,
    },
)


class FakeMachine:
    """Fake lanes on a manual clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fake = FakeLanes(PROFILE, self.clock.now)
        self.lanes: Lanes = self.fake
        self._ended: deque[End] = deque()

    def now(self) -> int:
        return self.clock.now()

    def next_end(self) -> End:
        while not self._ended:
            end = self.fake.next_end()
            assert end is not None
            self.clock.advance(end - self.clock.now())
            self._ended += [End(done, end) for done in self.fake.take_ended()]
        return self._ended.popleft()


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine()


def bench_on(machine: FakeMachine, model: LoadedModel | None = None, **enough: int) -> Bench:
    loaded = model or fake_model(MODEL)
    return Bench(machine, dict.fromkeys((PREFIX, HELD, DENOISE), loaded), Enough(**enough))


def test_a_launch_alone_takes_its_solo_time(machine: FakeMachine) -> None:
    bench = bench_on(machine)

    assert bench.alone(PREFIX).value == ms(30)
    assert bench.alone(HELD).value == ms(50)


def test_two_launches_take_their_solo_times_times_their_slowdowns(machine: FakeMachine) -> None:
    of_prefix, of_denoise = bench_on(machine).beside(PREFIX, DENOISE)

    assert of_prefix.value == pytest.approx(ms(37.5), rel=1e-5)
    assert of_denoise.value == pytest.approx(ms(16), rel=1e-5)


def test_every_run_that_counts_lies_wholly_beside_the_other(machine: FakeMachine) -> None:
    of_prefix, of_denoise = bench_on(machine).beside(HELD, DENOISE)

    # The last run of the longer one goes on alone; counted, it would widen the intervals.
    assert of_prefix.high - of_prefix.low <= 2
    assert of_denoise.high - of_denoise.low <= ms(8) * 1e-3


def test_nothing_runs_when_a_measurement_is_over(machine: FakeMachine) -> None:
    bench_on(machine).beside(PREFIX, DENOISE)

    assert machine.fake.running == {}


def test_a_short_launch_beside_a_long_one_keeps_few_times(machine: FakeMachine) -> None:
    _, of_denoise = bench_on(machine, most_runs=3).beside(HELD, DENOISE)

    assert of_denoise.runs <= 24


def test_a_denoise_launch_reads_a_cache_that_a_prefix_has_filled(machine: FakeMachine) -> None:
    # An unfilled slot of this network raises, and a launch that fails is refused below.
    bench_on(machine).alone(DENOISE)


def test_a_network_that_fails_is_an_error_that_names_the_model(machine: FakeMachine) -> None:
    loaded = fake_model(MODEL)
    assert isinstance(loaded.network, FakeNetwork)
    loaded.network.faults[Stage.PREFIX] = ValueError("no memory")

    with pytest.raises(ConfigError, match=r"a launch failed while it was measured.*'pi0'"):
        bench_on(machine, loaded).alone(PREFIX)
