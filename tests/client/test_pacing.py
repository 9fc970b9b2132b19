import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.client.pacing import Pacer, Tick, period_of, sleep
from takt.errors import ConfigError
from takt.testing import ManualClock
from takt.units import MILLISECOND, ms

PERIOD = ms(20)


def pacer_of(clock: ManualClock) -> Pacer:
    def wait(duration: int) -> None:
        clock.advance(duration)

    return Pacer(PERIOD, clock=clock.now, wait=wait)


def test_ticks_begin_at_multiples_of_the_period_however_long_they_take() -> None:
    clock = ManualClock(ms(7))
    pacer = pacer_of(clock)
    started = []

    for took in (ms(1), ms(19), ms(5), ms(0)):
        started.append(pacer.next_tick().started)
        clock.advance(took)

    assert started == [ms(7), ms(27), ms(47), ms(67)]
    assert (pacer.overruns, pacer.skipped) == (0, 0)


def test_a_tick_that_ends_late_is_followed_at_once_and_the_beat_is_kept() -> None:
    clock = ManualClock()
    pacer = pacer_of(clock)
    pacer.next_tick()
    clock.advance(ms(25))

    late = pacer.next_tick()
    on_time = pacer.next_tick()

    assert (late.scheduled, late.started, late.late) == (ms(20), ms(25), ms(5))
    assert (on_time.scheduled, on_time.started) == (ms(40), ms(40))
    assert (pacer.overruns, pacer.skipped) == (1, 0)


def test_instants_that_passed_are_skipped_and_never_made_up_for() -> None:
    clock = ManualClock()
    pacer = pacer_of(clock)
    pacer.next_tick()
    clock.advance(ms(90))

    resumed = pacer.next_tick()
    following = pacer.next_tick()

    assert resumed == Tick(number=4, scheduled=ms(80), started=ms(90), skipped=3)
    assert (following.number, following.started) == (5, ms(100))
    assert (pacer.overruns, pacer.skipped) == (1, 3)


def test_a_wait_that_ends_early_is_waited_out() -> None:
    clock = ManualClock()
    pacer = Pacer(PERIOD, clock=clock.now, wait=lambda duration: _pass(clock, duration // 2 + 1))
    pacer.next_tick()

    assert pacer.next_tick().started >= PERIOD


def _pass(clock: ManualClock, duration: int) -> None:
    clock.advance(duration)


@given(st.lists(st.integers(0, 100).map(ms), max_size=40))
def test_no_two_ticks_stand_for_one_instant_and_each_instant_is_counted_once(
    durations: list[int],
) -> None:
    clock = ManualClock()
    pacer = pacer_of(clock)
    ticks = []
    for took in durations:
        ticks.append(pacer.next_tick())
        clock.advance(took)

    numbers = [tick.number for tick in ticks]
    assert numbers == sorted(set(numbers))
    assert sum(tick.skipped for tick in ticks) == pacer.skipped
    assert numbers[-1:] == [len(ticks) - 1 + pacer.skipped][: len(ticks)]
    assert all(0 <= tick.late < PERIOD for tick in ticks)


def test_a_step_of_the_wall_clock_does_not_reach_a_pacer(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> float:
        raise AssertionError("the wall clock was read")

    monkeypatch.setattr(time, "time", forbidden)
    monkeypatch.setattr(time, "time_ns", forbidden)
    pacer = Pacer(MILLISECOND)

    ticks = [pacer.next_tick() for _ in range(5)]

    assert all(tick.started >= tick.scheduled for tick in ticks)


def test_waiting_no_time_at_all_is_allowed() -> None:
    sleep(0)


@pytest.mark.parametrize("rate_hz", [0.0, -1.0, float("nan"), float("inf"), 1e6])
def test_a_rate_that_cannot_be_kept_is_refused_by_name(rate_hz: float) -> None:
    with pytest.raises(ConfigError, match="control_hz"):
        period_of(rate_hz, "control_hz")


def test_a_period_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="period"):
        Pacer(0)
