"""A simulated robot asks by its rule, executes its queue tick by tick, and keeps its own dice."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sim.fleets import group_of

from takt.sim.robot import SimulatedRobot
from takt.units import SECOND, Nanos, ms


def robot_of(
    seed: int = 0,
    name: str = "pi0-0",
    **how: Any,  # noqa: ANN401 - fields of RobotGroup
) -> SimulatedRobot:
    return SimulatedRobot(name, group_of(**how), seed)


def closed_loop(seed: int = 0, threshold: float = 0.5) -> SimulatedRobot:
    """100 ticks per second and chunks of 10 actions."""
    return robot_of(seed, rate_hz=None, control_hz=100, horizon=10, threshold=threshold)


def asks(robot: SimulatedRobot, number: int) -> list[Nanos]:
    """Instants of the first observations of an open-loop robot that gets no answers."""
    instants = [robot.first_ask()]
    while len(instants) < number:
        following = robot.ask(instants[-1]).next_ask
        assert following is not None
        instants.append(following)
    return instants


@given(seed=st.integers(0, 999), rate=st.sampled_from([0.5, 2.0, 3.0, 10.0]))
def test_an_open_loop_robot_asks_once_per_period_from_its_phase_on(seed: int, rate: float) -> None:
    period = round(SECOND / rate)

    instants = asks(robot_of(seed, rate_hz=rate), 5)

    assert 0 <= instants[0] < period
    assert instants == [instants[0] + n * period for n in range(5)]


@given(seed=st.integers(0, 999))
def test_jitter_delays_an_observation_and_does_not_move_the_next_one(seed: int) -> None:
    steady = asks(robot_of(seed), 20)
    late = asks(robot_of(seed, jitter_ms=80), 20)

    delays = [after - before for before, after in zip(steady, late, strict=True)]

    assert all(0 <= delay < ms(80) for delay in delays)
    assert len(set(delays)) > 1


def test_phases_of_a_fleet_are_spread_over_the_whole_period() -> None:
    phases = sorted(robot_of(name=f"pi0-{n}").first_ask() for n in range(400))

    gaps = [later - earlier for earlier, later in itertools.pairwise(phases)]

    assert phases[0] < ms(10)
    assert phases[-1] > ms(490)
    assert max(gaps) < ms(20)


def test_closed_loop_robots_do_not_ask_together_after_they_were_switched_on() -> None:
    # A chunk of 50 at 30 ticks per second lasts 25 ticks until half of it is left.
    first = [robot_of(name=f"pi0-{n}", rate_hz=None).first_ask() for n in range(400)]

    assert max(first) <= 25 * SECOND / 30
    assert sum(instant < SECOND / 30 for instant in first) < 40


def test_two_robots_draw_from_streams_of_their_own() -> None:
    one, again, other = robot_of(name="pi0-0"), robot_of(name="pi0-0"), robot_of(name="pi0-1")

    assert one.first_ask() == again.first_ask() != other.first_ask()
    assert one.uplink.random() == again.uplink.random() != other.uplink.random()
    assert one.downlink.random() != one.uplink.random()


def test_delays_do_not_disturb_the_jitter() -> None:
    undisturbed = asks(robot_of(jitter_ms=80), 5)
    robot = robot_of(jitter_ms=80)
    robot.uplink.random()
    robot.downlink.random()

    assert asks(robot, 5) == undisturbed


def test_a_closed_loop_robot_never_arranges_an_ask_before_it_has_an_answer() -> None:
    robot = closed_loop()

    assert robot.ask(robot.first_ask()).next_ask is None


@pytest.mark.parametrize(("threshold", "left"), [(0.5, 5), (0.7, 7), (0.0, 0), (0.95, 9)])
def test_a_closed_loop_robot_asks_when_its_queue_has_drained_to_the_threshold(
    threshold: float, left: int
) -> None:
    robot = closed_loop(threshold=threshold)
    first = robot.first_ask()
    robot.ask(first)

    following = robot.receive(0, first + ms(1))

    # Ticks of 10 ms from `first` on: the one at `first` starved, the next takes action 0.
    assert following == first + ms(10) * (10 - left)
    robot.ask(first + ms(10) * (10 - left))
    assert robot.queue.remaining == left


def test_a_threshold_of_one_asks_at_the_next_tick_and_not_at_once() -> None:
    robot = closed_loop(threshold=1.0)
    first = robot.first_ask()
    robot.ask(first)

    assert robot.receive(0, first + ms(1)) == first + ms(10)


def test_a_refused_closed_loop_robot_asks_again_at_its_next_tick() -> None:
    robot = closed_loop()
    first = robot.first_ask()
    robot.ask(first)

    assert robot.refused(first + ms(34)) == first + ms(40)


def test_an_open_loop_robot_is_not_moved_by_its_answers() -> None:
    robot = robot_of()
    first = robot.first_ask()
    robot.ask(first)

    assert robot.receive(0, first + ms(40)) is None
    assert robot.refused(first + ms(50)) is None


def test_starvation_by_hand() -> None:
    # Ticks of 10 ms, chunks of 10 actions, asked for when 5 are left; answers take 85 ms.
    #
    #   tick       0         1..8        9..13       14..18       19..22       23..
    #   happens    asks      waits       5 actions   5 actions    nothing left chunk of
    #              starved   starved     then asks   while waiting starved     timestep 5
    robot = closed_loop()
    start = robot.first_ask()
    robot.ask(start)

    second = robot.receive(0, start + ms(85))
    assert robot.starved_ticks == 9
    assert second == start + ms(130)

    ask = robot.ask(start + ms(130))
    assert ask.first_timestep == 5
    assert ask.dry_at == start + ms(190)

    robot.receive(ask.first_timestep, start + ms(225))
    assert robot.starved_ticks == 9 + 4

    robot.catch_up(start + ms(280))  # timesteps 10 to 14 of the second chunk: ticks 23 to 27
    assert robot.starved_ticks == 9 + 4
    robot.catch_up(start + ms(300))
    assert robot.starved_ticks == 9 + 4 + 2
    assert robot.ticks == 30


def test_a_robot_with_an_empty_queue_runs_dry_at_its_next_tick() -> None:
    robot = closed_loop()
    first = robot.first_ask()

    assert robot.ask(first).dry_at == first + ms(10)


def test_a_chunk_that_a_newer_one_has_overtaken_changes_nothing() -> None:
    robot = robot_of(rate_hz=50, control_hz=100, horizon=10)
    start = robot.first_ask()
    robot.ask(start)
    robot.receive(0, start + ms(5))
    older, newer = robot.ask(start + ms(20)), robot.ask(start + ms(40))
    robot.receive(newer.first_timestep, start + ms(45))
    end = robot.queue.next_timestep + robot.queue.remaining

    robot.receive(older.first_timestep, start + ms(46))

    assert robot.queue.next_timestep + robot.queue.remaining == end


@given(
    seed=st.integers(0, 99),
    instants=st.lists(st.integers(0, ms(500)), max_size=20),
)
def test_catching_up_often_or_once_executes_the_same_ticks(seed: int, instants: list[int]) -> None:
    often, once = closed_loop(seed), closed_loop(seed)
    for instant in sorted(instants):
        often.catch_up(instant)
    for robot in (often, once):
        robot.catch_up(ms(500))

    assert (often.ticks, often.starved_ticks) == (once.ticks, once.starved_ticks)
