"""When a robot asks, and how long its actions last."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import ConfigError, UsageError
from takt.robot.action_queue import ActionQueue
from takt.robot.replanning import (
    BufferRule,
    LatencyRule,
    Replanner,
    ReplanningRule,
    ThresholdRule,
    due_in,
    time_until_dry,
)
from takt.units import ms


@dataclass(frozen=True)
class Level:
    remaining: int
    longest_chunk: int


def lerobot_asks(level: Level, threshold: float) -> bool:
    chunk = level.longest_chunk or -1  # its chunk size is -1 before the first chunk
    return level.remaining / chunk <= threshold


levels = st.integers(0, 300).flatmap(
    lambda longest: st.builds(Level, st.integers(0, longest), st.just(longest))
)
thresholds = st.one_of(st.floats(0, 1), st.integers(0, 100).map(lambda percent: percent / 100))


@given(levels, thresholds)
def test_the_rule_asks_exactly_when_lerobots_does(level: Level, threshold: float) -> None:
    assert ThresholdRule(threshold=threshold).is_due(level) == lerobot_asks(level, threshold)


@given(levels, thresholds)
def test_the_ticks_until_due_are_those_one_would_count(level: Level, threshold: float) -> None:
    counted = 0
    while not lerobot_asks(Level(level.remaining - counted, level.longest_chunk), threshold):
        counted += 1

    assert ThresholdRule(threshold=threshold).ticks_until_due(level) == counted


@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.0])
def test_before_the_first_chunk_the_rule_always_asks(threshold: float) -> None:
    assert ThresholdRule(threshold=threshold).is_due(ActionQueue[int]())


def test_a_threshold_of_zero_asks_only_when_the_queue_is_empty() -> None:
    rule = ThresholdRule(threshold=0.0)

    assert not rule.is_due(Level(1, 50))
    assert rule.is_due(Level(0, 50))
    assert rule.ticks_until_due(Level(50, 50)) == 50


def test_a_threshold_of_one_asks_at_every_tick() -> None:
    assert ThresholdRule(threshold=1.0).is_due(Level(50, 50))


def test_the_rule_asks_at_the_share_itself() -> None:
    queue: ActionQueue[int] = ActionQueue()
    queue.merge(0, range(20))
    rule = ThresholdRule(threshold=0.5)

    queue.advance(rule.ticks_until_due(queue))

    assert (queue.remaining, queue.fill) == (10, 0.5)
    assert rule.is_due(queue)


@pytest.mark.parametrize("threshold", [-0.01, 1.01, math.nan])
def test_a_threshold_outside_its_range_is_refused(threshold: float) -> None:
    with pytest.raises(ConfigError, match=r"threshold must lie in \[0, 1\]"):
        ThresholdRule(threshold=threshold)


def test_a_queue_runs_dry_at_the_first_tick_without_an_action() -> None:
    queue: ActionQueue[int] = ActionQueue()
    queue.merge(0, range(3))
    dry_in = time_until_dry(queue, ms(20))

    starved = queue.advance(dry_in // ms(20))

    assert starved == 0
    assert queue.pop() is None


@pytest.mark.parametrize("period", [0, -1])
def test_a_control_period_must_be_positive(period: int) -> None:
    with pytest.raises(ConfigError, match="control_period must be positive"):
        time_until_dry(Level(1, 1), period)


def test_a_buffer_asks_once_the_queue_lasts_no_longer() -> None:
    rule = BufferRule(buffer=ms(100), control_period=ms(20))

    assert rule.ticks_until_due(Level(8, 50)) == 3
    assert rule.ticks_until_due(Level(5, 50)) == 0
    assert rule.ticks_until_due(Level(0, 0)) == 0


def test_a_buffer_between_two_ticks_asks_at_the_later_one() -> None:
    assert BufferRule(buffer=ms(99), control_period=ms(20)).ticks_until_due(Level(5, 50)) == 1


@given(latency=st.integers(0, 2_000), margin=st.integers(0, 200), period=st.integers(1, 100))
def test_a_request_by_latency_leaves_in_time_and_no_tick_too_early(
    latency: int, margin: int, period: int
) -> None:
    rule = LatencyRule(control_period=period, margin=margin)
    level = Level(300, 300)

    remaining = level.remaining - rule.ticks_until_due(level, latency)

    if remaining < level.remaining:
        assert remaining * period >= latency + margin
        assert (remaining - 1) * period < latency + margin


def test_without_a_measured_latency_the_threshold_decides() -> None:
    rule = LatencyRule(control_period=ms(20), until_known=ThresholdRule(threshold=0.25))

    assert rule.ticks_until_due(Level(40, 80)) == 20


def test_a_request_by_latency_leaves_after_so_many_actions_at_most() -> None:
    rule = LatencyRule(control_period=ms(20), margin=0, execution_horizon=9)

    assert rule.ticks_until_due(Level(14, 16), ms(40)) == 14 - (16 - 9)
    assert rule.ticks_until_due(Level(7, 16), ms(40)) == 0
    assert rule.ticks_until_due(Level(14, 16), ms(200)) == 4  # a slow server is asked sooner still


def test_a_robot_asks_later_when_its_server_is_quicker() -> None:
    rule = LatencyRule(control_period=ms(20), margin=0)

    assert rule.ticks_until_due(Level(50, 50), ms(100)) > rule.ticks_until_due(
        Level(50, 50), ms(400)
    )


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda: BufferRule(buffer=-1, control_period=1), "buffer must be at least 0"),
        (lambda: BufferRule(buffer=0, control_period=0), "control_period must be positive"),
        (lambda: LatencyRule(margin=-1, control_period=1), "margin must be at least 0"),
        (
            lambda: LatencyRule(execution_horizon=0, control_period=1),
            "execution_horizon must be at least 1",
        ),
        (lambda: LatencyRule(control_period=0), "control_period must be positive"),
        (lambda: replanner(patience=0.5), "patience must be at least 1"),
        (lambda: replanner(patience=math.nan), "patience must be at least 1"),
    ],
)
def test_impossible_settings_are_refused(rule: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rule()


def test_due_is_when_the_queue_runs_dry_less_the_network() -> None:
    at = {"control_period": ms(20), "now": ms(5), "next_tick": ms(15)}

    assert due_in(Level(3, 10), **at) == ms(70)
    assert due_in(Level(3, 10), **at, network=ms(30)) == ms(40)
    assert due_in(Level(0, 10), **at, network=ms(30)) == -ms(20)


def test_a_tick_that_is_overdue_counts_as_now() -> None:
    assert due_in(Level(1, 10), control_period=ms(20), now=ms(50), next_tick=ms(15)) == ms(20)


def replanner(rule: ReplanningRule | None = None, **settings: float) -> Replanner:
    return Replanner(rule or ThresholdRule(), control_period=ms(20), **settings)


def test_one_request_is_under_way_at_a_time() -> None:
    asking = replanner()

    asking.ask(Level(0, 0), now=0, next_tick=0)

    assert asking.is_waiting
    assert not asking.is_due(Level(0, 0))
    with pytest.raises(UsageError, match="a request is under way"):
        asking.ask(Level(0, 0), now=0, next_tick=0)


@pytest.mark.parametrize("ending", ["answered", "failed"])
def test_after_a_request_the_rule_decides_again(ending: str) -> None:
    asking = replanner()
    asking.ask(Level(0, 0), now=0, next_tick=0)

    asking.answered(5) if ending == "answered" else asking.failed()

    assert asking.is_due(Level(25, 50))
    assert not asking.is_due(Level(26, 50))


def test_an_answer_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(UsageError, match="no request is under way"):
        replanner().answered(0)


def test_a_robot_with_an_empty_queue_says_so() -> None:
    assert replanner().ask(Level(0, 10), now=0, next_tick=0).must_go
    assert not replanner().ask(Level(1, 10), now=0, next_tick=0).must_go


def test_the_measured_network_is_taken_off_the_next_due() -> None:
    asking = replanner()
    asking.ask(Level(0, 0), now=0, next_tick=0)
    asking.answered(ms(80), network=ms(30))

    ask = asking.ask(Level(10, 20), now=ms(100), next_tick=ms(100))

    assert ask.due_in == ms(200 - 30)


def test_where_the_server_says_nothing_the_whole_time_is_the_networks() -> None:
    asking = replanner()
    asking.ask(Level(0, 0), now=0, next_tick=0)
    asking.answered(ms(80))

    assert asking.network.estimate == ms(80)


def test_the_first_answer_is_cold_and_not_the_latency() -> None:
    asking = replanner(LatencyRule(control_period=ms(20), margin=0))
    for began, took in ((0, 9_000), (10_000, 40)):
        asking.ask(Level(0, 0), now=ms(began), next_tick=ms(began))
        asking.answered(ms(began + took))

    assert asking.latency.estimate == ms(40)
    assert asking.is_due(Level(2, 50))
    assert not asking.is_due(Level(3, 50))


def test_an_answer_is_overdue_after_a_multiple_of_the_latency() -> None:
    asking = replanner(patience=2)
    for began in (0, 1_000):
        asking.ask(Level(9, 9), now=ms(began), next_tick=ms(began))
        assert not asking.is_overdue(Level(9, 9), ms(began + 900))
        asking.answered(ms(began + 100))
    assert not asking.is_overdue(Level(9, 9), ms(5_000))

    asking.ask(Level(9, 9), now=ms(5_000), next_tick=ms(5_000))

    assert not asking.is_overdue(Level(9, 9), ms(5_200))
    assert asking.is_overdue(Level(9, 9), ms(5_201))


def test_a_failure_does_not_end_the_wait_for_an_answer() -> None:
    asking = replanner()
    for began in (0, 1_000):
        asking.ask(Level(9, 9), now=ms(began), next_tick=ms(began))
        asking.answered(ms(began + 100))
    asking.ask(Level(9, 9), now=ms(2_000), next_tick=ms(2_000))
    asking.failed()

    assert asking.is_overdue(Level(9, 9), ms(2_300))
    asking.ask(Level(9, 9), now=ms(2_300), next_tick=ms(2_300))
    assert asking.is_overdue(Level(9, 9), ms(2_301))


def test_while_no_latency_is_known_an_empty_queue_makes_an_answer_overdue() -> None:
    asking = replanner()
    asking.ask(Level(1, 9), now=0, next_tick=0)

    assert not asking.is_overdue(Level(1, 9), ms(9_000))
    assert asking.is_overdue(Level(0, 9), 1)
