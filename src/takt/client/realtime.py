"""Runs a simulated environment by a control loop, on the wall clock, one step per control tick.

Here the world does not wait for the policy, as it does in :mod:`takt.client.rollout`: the
environment is stepped at every tick, with an action, or with what the loop sends when it has none,
or, before the first action, with a command that moves nothing. A chunk that is late costs time in
which nothing useful happens, as it costs a robot.

Each episode has a control loop, a queue and a connection of its own, so nothing of one episode is
executed in the next. The runner stands in for the person at the robot: it starts the robot, and
resumes it after a hold. Everything that touches the environment runs in the calling thread.

An environment that cannot be stepped and observed within a tick makes the loop skip ticks: its
time then runs slower than the clock's. :attr:`RealtimeEpisode.status` counts them, and the
durations are there to see.

Start reading at :func:`run_realtime_episode`.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from takt.client.loop import ControlLoop, LoopStatus
from takt.client.loop_settings import Robot
from takt.client.robots.described import DescribedRobot, RobotDescription
from takt.client.rollout import Environment, EpisodeResult, Moment, is_over
from takt.errors import ConfigError
from takt.robot.contract_table import State
from takt.robot.joints import Vector
from takt.units import Nanos

__all__ = [
    "Ending",
    "EnvironmentRobot",
    "RealtimeEpisode",
    "RealtimeMoment",
    "RealtimeRules",
    "run_realtime_episode",
]

log = logging.getLogger(__name__)

Ending: TypeAlias = Literal["solved", "over", "ticks", "stopped"]
"""Why an episode ended: solved; ended by the environment; no ticks left; the loop stopped."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RealtimeRules:
    """How an episode goes."""

    max_ticks: int = 200
    """Control ticks after which the task counts as not solved, whatever was executed in them."""
    rest: Vector | None = None
    """Command that moves nothing, for ticks before the first action; None: the environment stands
    still until then, as one that takes positions must."""

    def __post_init__(self) -> None:
        if self.max_ticks < 1:
            raise ConfigError(f"max_ticks must be at least 1, got {self.max_ticks}")


class EnvironmentRobot:
    """An environment as a robot that is stepped at most once per tick and never after its end.

    Args:
        environment: What is stepped.
        rest: See :class:`RealtimeRules`.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        rest: Vector | None,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        self._environment = environment
        self._rest = rest
        self._clock = clock
        self._was_stepped = False
        self._told: Vector | None = None  # the newest command, stepped with or not
        self.steps = 0
        """Steps of the environment."""
        self.rested = 0
        """Of these, with the command that moves nothing."""
        self.is_solved = self.has_ended = False
        self.seen: Mapping[str, object] = {}
        """The newest observation."""
        self.command: Vector | None = None
        """What it was stepped with last."""
        self.step_times: list[Nanos] = []
        """How long each step took."""
        self.observe_times: list[Nanos] = []
        """How long each observation took, pictures included."""
        self.error: Exception | None = None
        """What the environment raised first; it has ended then."""

    def describe(self) -> RobotDescription:
        """What the environment tells of itself."""
        robot: object = self._environment
        return robot.describe() if isinstance(robot, DescribedRobot) else RobotDescription()

    def observe(self) -> Mapping[str, object]:
        """See :class:`~takt.client.loop_settings.Robot`."""
        began = self._clock()
        try:
            self.seen = self._environment.observe()
        except Exception as error:
            self._fail(error)
            raise
        self.observe_times.append(self._clock() - began)
        return self.seen

    def act(self, action: Vector, /) -> object:
        """Step the environment; nothing once it has ended."""
        self._told = action
        if self.has_ended or self._was_stepped:
            return
        self._was_stepped = True
        self.command = action
        began = self._clock()
        try:
            self.is_solved = bool(self._environment.step(action))
        except Exception as error:
            self._fail(error)
            raise
        self.step_times.append(self._clock() - began)
        self.steps += 1
        self.has_ended = self.is_solved or is_over(self._environment)

    def end_tick(self) -> bool:
        """A tick is over: let time pass in the environment, too, if nothing was sent.

        Returns:
            Whether the environment was stepped in this tick.
        """
        if not self._was_stepped and self._rest is not None and not self.has_ended:
            self.act(self._rest.copy())
            self.rested += 1
        was_stepped, self._was_stepped = self._was_stepped, False
        return was_stepped

    def come_to_rest(self) -> None:
        """Step the environment with the newest command, if that came too late for its tick.

        Of an episode that was ended from outside: the last velocity must not stay in force.
        """
        if self._told is None or self._told is self.command:
            return
        try:
            self._environment.step(self._told)
        except Exception:  # some take no step after their last one, and say so in no other way
            log.info("an environment could not be brought to rest", exc_info=True)

    def _fail(self, error: Exception) -> None:
        self.error = self.error or error
        self.has_ended = True


@dataclass(frozen=True, kw_only=True, eq=False)
class RealtimeMoment:
    """An episode after a tick, for those who look on. They take their time from the tick."""

    moment: Moment | None
    """What the environment was stepped with; None: it was not."""
    loop: ControlLoop
    robot: EnvironmentRobot


@dataclass(frozen=True, kw_only=True, eq=False)
class RealtimeEpisode:
    """How an episode went."""

    result: EpisodeResult
    """Its ``steps`` are all steps of the environment, those without an action included."""
    ending: Ending
    status: LoopStatus
    """Of the loop, at the end."""
    rested: int
    """Steps before the first action."""
    duration: Nanos
    """From the first tick to the end, on the clock."""
    step_times: list[Nanos]
    """How long each step of the environment took."""
    observe_times: list[Nanos]
    """How long each observation took, pictures included."""


def _look_away(moment: RealtimeMoment) -> None:
    del moment


def run_realtime_episode(
    environment: Environment,
    drive: Callable[[Robot], ControlLoop],
    rules: RealtimeRules,
    *,
    index: int,
    look: Callable[[RealtimeMoment], None] = _look_away,
    clock: Callable[[], Nanos] = time.monotonic_ns,
) -> RealtimeEpisode:
    """Run one episode until it is solved, it ends, the ticks are used up, or the loop stops.

    Args:
        environment: What to act on.
        drive: Makes the control loop of this episode, a new one each time. A loop whose actions
            command displacements or velocities needs ``hold_mode="velocity"``, or a hold would
            drive on.
        rules: How long, and what moves nothing.
        index: Which start.
        look: Called after each tick.
        clock: Monotonic, in nanoseconds; the loop's.

    Returns:
        How it went.

    Raises:
        Exception: What the environment raised.
    """
    environment.reset(index)
    environment.observe()  # the first picture takes longest, and no clock is running yet
    robot = EnvironmentRobot(environment, rest=rules.rest, clock=clock)
    loop = drive(robot)
    loop.open(control_thread=False)
    began = clock()
    try:
        loop.start()
        ticks = 0
        while not robot.has_ended and ticks < rules.max_ticks and loop.state is not State.STOPPED:
            if loop.state is State.HOLD:
                loop.resume()
            loop.tick()
            ticks += 1
            look(_moment(index, loop, robot, was_stepped=robot.end_tick()))
        status, duration = loop.status(), clock() - began
    finally:
        is_at_its_end, robot.has_ended = robot.has_ended, True
        loop.close()  # what it sends to bring a robot to rest is none of the episode
        if not is_at_its_end:
            robot.come_to_rest()
    if robot.error is not None:
        raise robot.error
    return RealtimeEpisode(
        result=EpisodeResult(
            index=index, is_solved=robot.is_solved, steps=robot.steps, chunks=status.answered
        ),
        ending=_ending(environment, robot, status),
        status=status,
        rested=robot.rested,
        duration=duration,
        step_times=robot.step_times,
        observe_times=robot.observe_times,
    )


def _moment(
    index: int, loop: ControlLoop, robot: EnvironmentRobot, *, was_stepped: bool
) -> RealtimeMoment:
    moment = None
    if was_stepped and robot.command is not None:
        moment = Moment(
            index=index,
            step=robot.steps - 1,
            observation=robot.seen,
            action=np.asarray(robot.command),
        )
    return RealtimeMoment(moment=moment, loop=loop, robot=robot)


def _ending(environment: Environment, robot: EnvironmentRobot, status: LoopStatus) -> Ending:
    if robot.is_solved:
        return "solved"
    if is_over(environment):
        return "over"
    return "stopped" if status.state is State.STOPPED else "ticks"
