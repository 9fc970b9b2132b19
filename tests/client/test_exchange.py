import dataclasses
from typing import NoReturn

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.client.fakes import answer

from takt.client.exchange import Exchange, Request
from takt.robot.replanning import ThresholdRule
from takt.testing import ManualClock
from takt.units import ms

TICK = ms(20)


def exchange_of(clock: ManualClock, **options: object) -> Exchange:
    return Exchange(control_period=TICK, clock=clock.now, **options)  # type: ignore[arg-type]


def seen(number: int) -> dict[str, object]:
    return {"number": number}


def taken(exchange: Exchange) -> Request:
    request = exchange.take_request()
    assert request is not None
    return request


def served(exchange: Exchange, first: float = 0.0, *, horizon: int = 4) -> None:
    """Observe, ask and be answered."""
    exchange.observe(seen(0))
    exchange.answered(taken(exchange), answer(first, horizon=horizon))


def test_before_the_first_observation_nothing_is_sent() -> None:
    assert exchange_of(ManualClock()).take_request() is None


def test_the_newest_observation_is_sent_and_older_ones_never() -> None:
    exchange = exchange_of(ManualClock())
    exchange.observe(seen(1))
    exchange.observe(seen(2))

    assert taken(exchange).observation == seen(2)
    assert exchange.take_request() is None


def test_one_observation_is_under_way_at_a_time() -> None:
    exchange = exchange_of(ManualClock())
    exchange.observe(seen(1))
    request = taken(exchange)
    exchange.observe(seen(2))
    assert exchange.take_request() is None

    exchange.failed(request, "expired", "too late", send_again=False)

    assert taken(exchange).observation == seen(2)


def test_a_full_queue_asks_for_nothing_until_it_has_drained_to_the_threshold() -> None:
    exchange = exchange_of(ManualClock(), rule=ThresholdRule(threshold=0.5))
    served(exchange, horizon=4)

    wanted = []
    for _ in range(4):
        wanted.append(exchange.wants_observation)
        exchange.next_action()

    assert wanted == [False, False, True, True]


def test_a_chunk_begins_at_the_timestep_its_observation_was_made_at() -> None:
    exchange = exchange_of(ManualClock(), rule=ThresholdRule(threshold=1.0))
    served(exchange, horizon=4)
    exchange.next_action()
    exchange.observe(seen(1))
    request = taken(exchange)
    exchange.next_action()

    exchange.answered(request, answer(100.0))

    action = exchange.next_action()
    assert request.first_timestep == 1
    assert action is not None
    assert np.array_equal(action, [101.0, 101.0])


def test_an_empty_queue_gives_none_and_counts_the_tick() -> None:
    exchange = exchange_of(ManualClock())

    assert exchange.next_action() is None

    status = exchange.status()
    assert (status.starved_ticks, status.next_timestep) == (1, 0)


def test_due_is_the_time_until_the_queue_runs_dry_less_the_network() -> None:
    clock = ManualClock()
    exchange = exchange_of(clock, rule=ThresholdRule(threshold=1.0))
    served(exchange, horizon=4)  # its answer says that the network took 2 ms
    exchange.next_action()
    clock.advance(ms(5))
    exchange.observe(seen(1))

    request = taken(exchange)

    # Three actions are left, and the next is executed 15 ms from now.
    assert request.due_in == ms(15) + 3 * TICK - ms(2)


def test_a_queue_that_is_dry_is_due_at_the_next_tick_or_before() -> None:
    clock = ManualClock()
    exchange = exchange_of(clock)
    served(exchange, horizon=1)
    exchange.next_action()
    exchange.next_action()
    clock.advance(TICK)
    exchange.observe(seen(1))

    assert taken(exchange).due_in == -ms(2)


def test_a_stock_servers_whole_round_trip_counts_as_network() -> None:
    clock = ManualClock()
    exchange = exchange_of(clock)
    exchange.observe(seen(0))

    exchange.answered(taken(exchange), answer(round_trip=ms(9), server=None))

    assert exchange.status().network == ms(9)


def test_an_observation_is_sent_again_unless_a_newer_one_came() -> None:
    exchange = exchange_of(ManualClock())
    exchange.observe(seen(1))

    exchange.failed(taken(exchange), "closed", "gone", send_again=True)

    request = taken(exchange)
    assert request.observation == seen(1)
    exchange.observe(seen(2))
    exchange.failed(request, "closed", "gone", send_again=True)
    assert taken(exchange).observation == seen(2)


def test_an_observation_that_was_refused_is_not_sent_again() -> None:
    exchange = exchange_of(ManualClock())
    exchange.observe(seen(1))

    exchange.failed(taken(exchange), "observation", "no state", send_again=False)

    assert exchange.take_request() is None
    status = exchange.status()
    assert (status.failures, status.last_failure) == ({"observation": 1}, "no state")


def test_an_observation_that_waited_too_long_is_not_sent() -> None:
    clock = ManualClock()
    exchange = exchange_of(clock, expires_after=ms(100))
    exchange.observe(seen(1))
    clock.advance(ms(100))

    assert exchange.take_request() is None

    assert exchange.status().failures == {"stale": 1}


def test_the_server_is_told_when_an_answer_is_worthless() -> None:
    clock = ManualClock()
    exchange = exchange_of(clock, expires_after=ms(100))
    exchange.observe(seen(1))
    clock.advance(ms(30))

    assert taken(exchange).expires_in == ms(70)


def test_a_chunk_of_an_observation_that_is_too_old_is_not_executed() -> None:
    clock = ManualClock()
    exchange = exchange_of(clock, expires_after=ms(100))
    exchange.observe(seen(1))
    request = taken(exchange)
    clock.advance(ms(100))

    exchange.answered(request, answer())

    status = exchange.status()
    assert (status.remaining, status.answered, status.late) == (0, 1, 1)


def test_after_closing_nothing_is_sent_but_queued_actions_are_executed() -> None:
    exchange = exchange_of(ManualClock(), rule=ThresholdRule(threshold=1.0))
    served(exchange)
    exchange.observe(seen(1))

    exchange.close()

    assert exchange.take_request() is None
    assert exchange.wait_for_request() is None
    assert exchange.next_action() is not None


class Rig:
    """A control loop and a sender in one thread. Each action says which timestep it is for."""

    def __init__(self, threshold: float) -> None:
        self.clock = ManualClock()
        self.exchange = exchange_of(self.clock, rule=ThresholdRule(threshold=threshold))
        self.executed: list[float] = []
        self.under_way: list[Request] = []

    def observe(self) -> None:
        self.exchange.observe(seen(0))

    def tick(self) -> None:
        self.clock.advance(TICK)
        action = self.exchange.next_action()
        if action is not None:
            self.executed.append(float(action[0]))

    def take(self) -> None:
        request = self.exchange.take_request()
        if request is not None:
            self.under_way.append(request)

    def answer(self) -> None:
        if self.under_way:
            request = self.under_way.pop()
            self.exchange.answered(request, answer(request.first_timestep))

    def fail(self) -> None:
        if self.under_way:
            self.exchange.failed(self.under_way.pop(), "closed", "gone", send_again=True)


@given(
    st.sampled_from([0.0, 0.5, 1.0]),
    st.lists(st.sampled_from(["observe", "tick", "take", "answer", "fail"]), max_size=60),
)
def test_no_timestep_is_executed_twice_and_none_is_skipped(
    threshold: float, steps: list[str]
) -> None:
    rig = Rig(threshold)

    for step in steps:
        getattr(rig, step)()
        assert len(rig.under_way) <= 1

    assert rig.executed == list(range(len(rig.executed)))


def test_a_merge_rule_that_raises_is_a_failure_that_is_counted() -> None:
    def clumsy(*_: object) -> NoReturn:
        raise ValueError("no such joint")

    exchange = exchange_of(ManualClock(), merge_rule=clumsy)
    served(exchange)
    for _ in range(2):
        exchange.next_action()

    served(exchange)

    status = exchange.status()
    assert (status.failures, status.last_failure) == ({"merge": 1}, "no such joint")
    assert (status.remaining, status.late, status.is_waiting) == (2, 0, False)


def test_the_bytes_of_the_newest_observation_are_told() -> None:
    exchange = exchange_of(ManualClock())
    exchange.observe(seen(1))
    came = dataclasses.replace(answer(), sent_bytes=900, raw_bytes=4000)

    exchange.answered(taken(exchange), came)

    status = exchange.status()
    assert (status.sent_bytes, status.raw_bytes) == (900, 4000)
