"""Real time: one step per tick, nothing of the last episode, nothing moved by a hold."""

import logging
import threading
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from tests.client.fakes import FakeConnection

from takt.client.answer import Answer
from takt.client.backoff import Backoff
from takt.client.in_process import InProcess
from takt.client.loop import ControlLoop
from takt.client.loop_settings import LoopSettings, Robot
from takt.client.realtime import (
    EnvironmentRobot,
    RealtimeMoment,
    RealtimeRules,
    run_realtime_episode,
)
from takt.client.robots.described import Axis, RobotDescription
from takt.errors import ConfigError
from takt.robot.contract_rules import ContractRules
from takt.robot.replanning import ThresholdRule
from takt.testing import ManualClock
from takt.units import MILLISECOND, ms

REST = np.zeros(2)
GRIP = 0.75
SOON = Backoff(base=MILLISECOND, most=MILLISECOND)

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


class Hand:
    """Moves by displacements; the second component is the gripper. Solved beyond ``goal``."""

    def __init__(self, *, goal: float = 1e9, most_steps: int = 10**9) -> None:
        self.goal = goal
        self.most_steps = most_steps
        self.index = -1
        self.actions: list[np.ndarray] = []
        self.error: BaseException | None = None

    @property
    def place(self) -> float:
        return float(sum(action[0] for action in self.actions))

    @property
    def is_over(self) -> bool:
        return len(self.actions) >= self.most_steps

    def reset(self, index: int) -> None:
        self.index = index
        self.actions = []

    def observe(self) -> Mapping[str, object]:
        return {"observation/state": np.array([self.place, GRIP]), "index": self.index}

    def step(self, action: np.ndarray) -> bool:
        if self.error is not None:
            raise self.error
        self.actions.append(np.array(action))
        return self.place > self.goal


def settings(**options: object) -> LoopSettings:
    contract = {
        "t_hold": ms(50),
        "hold_mode": "velocity",
        "deceleration": 1e9,
        "kept": (1,),
        "resume_ramp": 0,
        **options,
    }
    return LoopSettings(
        control_hz=200.0,
        rule=ThresholdRule(threshold=1.0),
        contract=ContractRules(**contract),  # type: ignore[arg-type]
    )


def driven_by(connect: Callable[[], object], **options: object) -> Callable[[Robot], ControlLoop]:
    def drive(robot: Robot) -> ControlLoop:
        return ControlLoop(robot, connect, settings(**options), backoff=SOON)  # type: ignore[arg-type]

    return drive


def walking(seen: Mapping[str, object]) -> np.ndarray:
    del seen
    return np.tile([1.0, GRIP], (8, 1))


def silent() -> FakeConnection:
    """A server that never answers."""

    def ask(seen: Mapping[str, object]) -> Answer:
        connection.closed.wait()
        raise ConnectionError

    connection = FakeConnection(ask)
    return connection


def once() -> FakeConnection:
    """A server that answers with five steps, and then never."""

    def ask(seen: Mapping[str, object]) -> Answer:
        if len(connection.asked) > 1:
            connection.closed.wait()
            raise ConnectionError
        return Answer(actions=walking(seen)[:5], round_trip=ms(1))

    connection = FakeConnection(ask)
    return connection


def test_an_episode_ends_when_the_task_is_solved() -> None:
    hand = Hand(goal=4.5)

    episode = run_realtime_episode(
        hand,
        driven_by(lambda: InProcess(walking)),
        RealtimeRules(max_ticks=10_000, rest=REST),
        index=3,
    )

    assert (episode.ending, episode.result.is_solved, episode.result.index) == ("solved", True, 3)
    assert hand.place == 5.0
    assert episode.result.steps == len(hand.actions) == len(episode.step_times)
    assert episode.result.chunks == episode.status.answered >= 1


def test_nothing_of_an_episode_is_executed_in_the_next() -> None:
    hand = Hand(most_steps=40)
    drive = driven_by(
        lambda: InProcess(lambda seen: np.tile([10.0 + float(str(seen["index"])), GRIP], (50, 1)))
    )
    rules = RealtimeRules(max_ticks=10_000, rest=REST)

    for index in range(4):
        episode = run_realtime_episode(hand, drive, rules, index=index)

        moves = {float(action[0]) for action in hand.actions}
        assert moves <= {0.0, 10.0 + index}
        assert episode.ending == "over"
        assert len(hand.actions) == 40  # closing the loop stepped nothing


def test_a_robot_without_actions_is_stepped_and_not_moved() -> None:
    hand = Hand()

    episode = run_realtime_episode(
        hand, driven_by(once), RealtimeRules(max_ticks=60, rest=REST), index=0
    )

    actions = [(float(move), float(grip)) for move, grip in hand.actions]
    rested = episode.rested
    assert len(actions) == episode.result.steps == episode.status.ticks == 60
    assert actions[:rested] == [(0.0, 0.0)] * rested
    assert actions[rested : rested + 5] == [(1.0, GRIP)] * 5
    assert actions[rested + 5 :] == [(0.0, GRIP)] * (55 - rested)
    assert episode.status.starved_ticks == 55
    assert episode.ending == "ticks"


def test_a_robot_that_takes_positions_stands_still_until_there_is_one() -> None:
    hand = Hand()

    episode = run_realtime_episode(hand, driven_by(silent), RealtimeRules(max_ticks=5), index=0)

    assert (episode.result.steps, episode.status.ticks, episode.ending) == (0, 5, "ticks")


def test_a_robot_goes_on_after_a_hold() -> None:
    answers = iter([once(), *(InProcess(walking) for _ in range(3))])
    cut = threading.Event()

    def connect() -> object:
        connection = next(answers)
        if isinstance(connection, FakeConnection):
            threading.Thread(target=lambda: (cut.wait(), connection.close())).start()
        return connection

    def look(moment: RealtimeMoment) -> None:
        if moment.loop.state.value == "hold":
            cut.set()

    hand = Hand(goal=8.5)
    episode = run_realtime_episode(
        hand, driven_by(connect), RealtimeRules(max_ticks=10_000, rest=REST), index=0, look=look
    )

    assert cut.is_set()
    assert episode.ending == "solved"


def test_an_episode_ends_when_the_loop_stops() -> None:
    episode = run_realtime_episode(
        Hand(),
        driven_by(once, t_stop=ms(20)),
        RealtimeRules(max_ticks=10_000, rest=REST),
        index=0,
    )

    assert episode.ending == "stopped"


def test_an_environment_that_fails_ends_the_run_with_its_own_error() -> None:
    hand = Hand()
    hand.error = RuntimeError("the simulation exploded")

    with pytest.raises(RuntimeError, match="exploded"):
        run_realtime_episode(
            hand, driven_by(lambda: InProcess(walking)), RealtimeRules(rest=REST), index=0
        )


def test_ctrl_c_in_an_environment_ends_the_run_and_steps_it_no_more() -> None:
    hand = Hand()

    def look(moment: RealtimeMoment) -> None:
        if moment.robot.steps == 10:
            hand.error = KeyboardInterrupt()

    with pytest.raises(KeyboardInterrupt):
        run_realtime_episode(
            hand,
            driven_by(lambda: InProcess(walking)),
            RealtimeRules(max_ticks=10_000, rest=REST),
            index=0,
            look=look,
        )

    assert len(hand.actions) == 10


def test_an_episode_that_runs_out_of_ticks_leaves_no_velocity_in_force() -> None:
    hand = Hand()

    episode = run_realtime_episode(
        hand,
        driven_by(lambda: InProcess(walking)),
        RealtimeRules(max_ticks=30, rest=REST),
        index=0,
    )

    assert episode.ending == "ticks"
    assert [float(action[0]) for action in hand.actions[-2:]] == [1.0, 0.0]
    assert episode.result.steps == len(hand.actions) - 1 == 30  # none of the episode


def test_an_environment_that_takes_no_step_after_its_last_ends_as_it_did(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Bounded(Hand):
        def step(self, action: np.ndarray) -> bool:
            if len(self.actions) == 30:
                raise ValueError("reset it first")
            return super().step(action)

    with caplog.at_level(logging.INFO):
        episode = run_realtime_episode(
            Bounded(),
            driven_by(lambda: InProcess(walking)),
            RealtimeRules(max_ticks=30, rest=REST),
            index=0,
        )

    assert (episode.ending, episode.result.steps) == ("ticks", 30)
    assert "could not be brought to rest" in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("the disk is full")])
def test_an_episode_that_is_broken_off_leaves_no_velocity_in_force(error: BaseException) -> None:
    hand = Hand()

    def look(moment: RealtimeMoment) -> None:
        if hand.place > 5:
            raise error

    with pytest.raises(type(error)):
        run_realtime_episode(
            hand,
            driven_by(lambda: InProcess(walking)),
            RealtimeRules(max_ticks=10_000, rest=REST),
            index=0,
            look=look,
        )

    assert [float(action[0]) for action in hand.actions[-2:]] == [1.0, 0.0]


def test_an_onlooker_sees_every_tick_and_what_was_done_in_it() -> None:
    hand, seen = Hand(), list[tuple[int, float]]()

    def look(moment: RealtimeMoment) -> None:
        assert moment.moment is not None
        seen.append((moment.moment.step, float(moment.moment.action[0])))

    run_realtime_episode(
        hand, driven_by(once), RealtimeRules(max_ticks=20, rest=REST), index=0, look=look
    )

    assert seen == [(step, float(action[0])) for step, action in enumerate(hand.actions)]


def test_an_environment_is_stepped_at_most_once_per_tick() -> None:
    hand = Hand()
    robot = EnvironmentRobot(hand, rest=REST)

    robot.act(np.array([1.0, GRIP]))
    robot.act(np.array([2.0, GRIP]))
    assert robot.end_tick()
    assert robot.end_tick()

    assert [float(action[0]) for action in hand.actions] == [1.0, 0.0]
    assert (robot.steps, robot.rested) == (2, 1)


def test_an_ended_episode_is_not_stepped() -> None:
    hand = Hand(goal=0.5)
    robot = EnvironmentRobot(hand, rest=REST)

    robot.act(np.array([1.0, GRIP]))
    assert robot.end_tick()
    robot.act(np.array([1.0, GRIP]))

    assert not robot.end_tick()
    assert len(hand.actions) == 1


def test_steps_and_observations_are_timed() -> None:
    clock = ManualClock()

    class Slow(Hand):
        def step(self, action: np.ndarray) -> bool:
            clock.advance(ms(7))
            return super().step(action)

        def observe(self) -> Mapping[str, object]:
            clock.advance(ms(30))
            return super().observe()

    robot = EnvironmentRobot(Slow(), rest=REST, clock=clock.now)
    robot.observe()
    robot.act(REST)

    assert (robot.step_times, robot.observe_times) == ([ms(7)], [ms(30)])


def test_a_robot_tells_what_its_environment_tells() -> None:
    told = RobotDescription(action=(Axis("x"), Axis("grip")))

    class Telling(Hand):
        def act(self, action: np.ndarray, /) -> object:
            return self.step(action)

        def describe(self) -> RobotDescription:
            return told

    assert EnvironmentRobot(Telling(), rest=None).describe() == told
    assert EnvironmentRobot(Hand(), rest=None).describe() == RobotDescription()


def test_an_episode_without_ticks_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_ticks"):
        RealtimeRules(max_ticks=0)
