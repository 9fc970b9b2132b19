"""Launches that wait: how long, in which order, and what ends them; tests/twin has the cost model.

Alone a prefix launch takes 10 and a denoise launch 20; together each takes twice as long.
"""

import threading

import pytest
from tests.core.driving import UNITS, model_of, works_of
from tests.runtime.pacing import Bench

from takt.core.profile import Profile, Work
from takt.core.request import Stage
from takt.errors import ConfigError, InvariantError

PREFIX = Work("pi0", Stage.PREFIX, 0, 1, UNITS)
DENOISE = Work("pi0", Stage.DENOISE, 0, 1, UNITS)


def device(factor: float = 2.0, *, prefix: int = 10) -> Profile:
    works = [*works_of(model_of())]
    pairs = [(a, b) for a in works for b in works if a.stage is not b.stage]
    return Profile(
        units=UNITS,
        shares=(2, UNITS),
        solo={work: prefix if work.stage is Stage.PREFIX else 20 for work in works},
        slowdown=dict.fromkeys(pairs, factor),
    )


@pytest.fixture
def bench() -> Bench:
    return Bench(device())


def stages(bench: Bench) -> list[Stage]:
    return [completed.lane.stage for completed in bench.take_ended()]


def test_a_launch_takes_its_profiled_time_and_not_less(bench: Bench) -> None:
    bench.start(PREFIX)
    assert bench.timer.instant == 10

    bench.clock.advance(9)
    assert stages(bench) == []
    bench.clock.advance(1)
    assert stages(bench) == [Stage.PREFIX]
    assert bench.timer.instant is None


def test_an_end_moves_back_when_a_co_runner_starts(bench: Bench) -> None:
    bench.start(DENOISE)
    bench.clock.advance(10)
    bench.start(PREFIX)

    assert bench.timer.instant == 30, "10 of 20 are left, at half the speed"


def test_an_end_moves_up_when_a_co_runner_ends(bench: Bench) -> None:
    bench.start(DENOISE)
    bench.start(PREFIX)
    assert bench.timer.instant == 20
    bench.clock.advance(20)

    assert stages(bench) == [Stage.PREFIX]
    assert bench.timer.instant == 30, "10 of 20 are left, at full speed"


def test_a_loop_that_wakes_late_makes_no_co_runner_longer(bench: Bench) -> None:
    bench.start(DENOISE)
    bench.start(PREFIX)
    bench.clock.advance(25)

    assert stages(bench) == [Stage.PREFIX]
    assert bench.timer.instant == 30


def test_what_has_ended_unnoticed_is_posted_before_the_next_launch_starts(bench: Bench) -> None:
    bench.start(PREFIX)
    bench.clock.advance(15)
    bench.start(DENOISE)

    assert [completed.lane.stage for completed in bench.completed] == [Stage.PREFIX]
    assert bench.timer.instant == 35, "it never ran beside the prefix"


def test_of_ends_that_are_found_together_the_earlier_comes_first(bench: Bench) -> None:
    bench.start(DENOISE)
    bench.start(PREFIX)
    bench.clock.advance(100)

    assert stages(bench) == [Stage.PREFIX, Stage.DENOISE]


def test_a_launch_gives_what_its_network_says(bench: Bench) -> None:
    bench.start(DENOISE, seq=5)
    bench.clock.advance(20)
    (denoise,) = bench.take_ended()

    assert list(denoise.chunks) == [5]


def test_a_network_that_raises_fails_its_rows_in_due_time(bench: Bench) -> None:
    bench.network.faults[Stage.DENOISE] = ValueError("broken")
    bench.start(DENOISE, seq=5)

    assert bench.take_ended() == []
    bench.clock.advance(20)
    assert list(bench.take_ended()[0].failures) == [5]


def test_another_profile_waits_until_nothing_runs(bench: Bench) -> None:
    bench.start(DENOISE)
    bench.lanes.pace(device(prefix=7))
    bench.start(PREFIX)
    assert bench.timer.instant == 20, "10 at half the speed: still the old table"
    bench.clock.advance(30)
    bench.take_ended()

    bench.start(PREFIX)

    assert bench.timer.instant == 30 + 7


def test_a_varied_launch_takes_its_own_time() -> None:
    bench = Bench(device(), vary=lambda time: time + 3)

    bench.start(PREFIX)

    assert bench.timer.instant == 13


def test_a_launch_that_the_table_lacks_is_refused(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="no time for pi0 prefix layout 0 size 3"):
        bench.start(PREFIX._replace(size=3))


def test_lanes_without_a_profile_start_nothing() -> None:
    with pytest.raises(InvariantError, match="without a profile"):
        Bench(None).start(PREFIX)


def test_closing_forgets_what_runs(bench: Bench) -> None:
    bench.start(PREFIX)

    bench.lanes.close()
    bench.clock.advance(100)

    assert bench.take_ended() == []
    assert bench.timer.instant is None


def test_a_function_runs_where_it_is_asked_for(bench: Bench) -> None:
    names: list[str] = []

    bench.lanes.call(Stage.PREFIX, lambda: names.append(threading.current_thread().name))

    assert names == [threading.current_thread().name]
