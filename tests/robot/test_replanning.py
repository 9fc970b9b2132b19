"""When a robot asks, and how long its actions last."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import ConfigError
from takt.robot.action_queue import ActionQueue
from takt.robot.replanning import ThresholdRule, time_until_dry
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
