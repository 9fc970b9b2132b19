"""One robot with a policy, in virtual time: the shipped control loop ticked by hand.

:class:`~takt.client.motion.Motion` is what moves a robot in :class:`~takt.client.loop.ControlLoop`;
here a loop gives it the time, and an answer comes when the declared time has passed. The policy is
really asked and the physics really stepped; only the clock is made up, so neither rendering nor
the speed of this machine is in the figures.

Time goes as on a robot: a tick begins, what is due is observed and asked, the command is sent, and
the simulated arm carries it out in the period that follows. A tick without an action costs its
period too: the arm holds still, see :func:`hold`.

Start reading at :func:`run_episode`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from takt.client.answer import ActionArray, Answer
from takt.client.journal import Journal
from takt.client.loop_settings import Hooks, LoopSettings
from takt.client.mailbox import Asked, Mailbox
from takt.client.motion import Motion
from takt.robot.blending import MergeName
from takt.robot.contract_rules import ContractRules
from takt.robot.replanning import LatencyRule, ReplanningRule, ThresholdRule
from takt.units import SECOND, Nanos, to_seconds

__all__ = [
    "ARMS",
    "EXECUTED_IN_SEQUENCE",
    "GRIPPER",
    "Arm",
    "Conditions",
    "World",
    "hold",
    "jerk_of",
    "run_episode",
    "settings_of",
]

EXECUTED_IN_SEQUENCE = 8
"""Actions of a chunk of sixteen that the sequential arms execute: what `mini` declares."""
GRIPPER = 3
"""Component of an action that is kept while the arm holds."""

_FOREVER = 10_000 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A way to ask."""

    title: str
    threshold: float | None
    """LeRobot's g; None: our rule, as late as is safe."""
    execution_horizon: int | None = None
    """Of our rule."""
    merge: MergeName = "latest_only"
    executed: int | None = None
    """Actions of a chunk to execute; None: all."""
    is_remote: bool = True
    """Its answers take the network's time too."""

    def rule(self, period: Nanos) -> ReplanningRule:
        """When it asks."""
        if self.threshold is None:
            return LatencyRule(control_period=period, execution_horizon=self.execution_horizon)
        return ThresholdRule(threshold=self.threshold)


_SEQUENTIAL = EXECUTED_IN_SEQUENCE
ARMS: Mapping[str, Arm] = {
    "local": Arm(
        title="sequential, in process", threshold=0.0, executed=_SEQUENTIAL, is_remote=False
    ),
    "remote": Arm(title="sequential, remote", threshold=0.0, executed=_SEQUENTIAL),
    "g0": Arm(title="g = 0", threshold=0.0),
    "g0.3": Arm(title="g = 0.3", threshold=0.3),
    "g0.5": Arm(title="g = 0.5", threshold=0.5),
    "g0.7": Arm(title="g = 0.7", threshold=0.7),
    "g0.9": Arm(title="g = 0.9", threshold=0.9),
    "ours": Arm(title="ours", threshold=None),
    "ours 9": Arm(title="ours, at most 9", threshold=None, execution_horizon=9),
    "g0.7 blended": Arm(title="g = 0.7, blended", threshold=0.7, merge="weighted_average"),
    "ours blended": Arm(title="ours, blended", threshold=None, merge="weighted_average"),
}
"""The arms of the experiment. ``g0`` waits for every answer as the sequential arms do, and executes
whole chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What an episode is run under."""

    period: Nanos
    """``environment_dt``: time between two control ticks."""
    answer: Nanos
    """From sending an observation to the answer being at the robot, network included."""
    network: Nanos
    """The network's part of it, both ways."""
    most_ticks: int
    """Environment time after which the task counts as not solved, the same for every arm."""


class World(Protocol):
    """What is acted on; see :class:`takt.cli.evaluating.metaworld.MetaworldEnvironment`."""

    def observe(self) -> Mapping[str, object]:
        """What the policy may know now."""
        ...

    def step(self, action: NDArray[Any]) -> bool:
        """Carry out one action; whether the task is solved now."""
        ...

    def position(self) -> NDArray[np.float64]:
        """Where the hand is, metres, shape ``(3,)``."""
        ...


@dataclass(slots=True)
class _Hand:
    """Takes the commands of one tick."""

    world: World
    command: NDArray[Any] | None = None

    def observe(self) -> Mapping[str, object]:
        return self.world.observe()

    def act(self, command: NDArray[Any]) -> None:
        self.command = command


@dataclass(slots=True)
class _Record:
    """What is noted of an episode while it runs."""

    queue: list[int] = field(default_factory=list[int])
    ages: list[float] = field(default_factory=list[float])
    positions: list[NDArray[np.float64]] = field(default_factory=list[NDArray[np.float64]])
    first: int | None = None
    starved: int = 0
    inferences: int = 0


def hold(dim: int, gripper: float) -> NDArray[np.float64]:
    """What a starved arm does: it moves nowhere and keeps its grip.

    Actions are displacements of the hand, so standing still is a displacement of zero, and not
    the last action again.
    """
    still = np.zeros(dim)
    still[GRIPPER] = gripper
    return still


def settings_of(arm: Arm, period: Nanos) -> LoopSettings:
    """How an arm's control loop is set up.

    Nothing holds, stops or ramps by itself: what a robot does about a late server is another
    experiment's question. Actions are displacements, hence ``velocity``: without one the arm stops.
    """
    rules = ContractRules(
        max_action_age=_FOREVER,
        t_hold=_FOREVER,
        t_stop=None,
        hold_mode="velocity",
        deceleration=1e9,
        kept=(GRIPPER,),
        resume_ramp=0,
    )
    return LoopSettings(
        control_hz=SECOND / period, rule=arm.rule(period), merge=arm.merge, contract=rules
    )


def run_episode(
    world: World,
    policy: Callable[[Mapping[str, object]], ActionArray],
    arm: Arm,
    conditions: Conditions,
) -> dict[str, Any]:
    """Run one episode until the task is solved or the environment time is used up.

    Args:
        world: What to act on, at its start.
        policy: Gives the chunk for an observation, shape ``(horizon, action_dim)``.
        arm: How to ask.
        conditions: How long everything takes.

    Returns:
        ``is_solved``; ``ticks`` until then; ``first_action_tick``, None without one; ``executed``
        actions; ``inferences``; ``starved`` ticks after the first action; ``splice_steps`` and
        ``splice_shifts``, the largest of x, y and z in full scale; ``jerk_m_s3`` of the hand, root
        of the mean square from the first action on; ``ages`` of actions in ticks since their
        observation; ``queue``, actions left after every tick.
    """
    run = _Run(world, policy, arm, conditions)
    is_solved = False
    tick = 0
    while not is_solved and tick < conditions.most_ticks:
        is_solved = run.tick(tick)
        tick += 1
    return run.result(is_solved=is_solved, ticks=tick)


class _Run:
    """One episode under way."""

    def __init__(
        self,
        world: World,
        policy: Callable[[Mapping[str, object]], ActionArray],
        arm: Arm,
        conditions: Conditions,
    ) -> None:
        self._world = world
        self._policy = policy
        self._arm = arm
        self._conditions = conditions
        self._now: Nanos = 0
        self._mailbox = Mailbox(lambda: self._now)
        self._hand = _Hand(world)
        self._motion = Motion(
            self._hand,
            self._mailbox,
            settings_of(arm, conditions.period),
            hooks=Hooks(),
            cameras=None,
            journal=Journal(None),
        )
        self._motion.contract.start()
        self._under_way: tuple[Nanos, Asked, Answer] | None = None
        self._gripper = 0.0
        self._record = _Record()

    def tick(self, number: int) -> bool:
        """One control tick and the period after it; whether the task is solved at its end."""
        at = number * self._conditions.period
        self._receive(at)
        self._now = at
        self._hand.command = None
        executed = self._motion.executed
        source = self._motion.queue.peek()
        self._motion.tick(at)
        if self._motion.executed > executed:
            if self._record.first is None:
                self._record.first = number
            age = None if source is None else source.age(at)
            self._record.ages.append(round((age or 0) / self._conditions.period, 2))
        else:
            self._record.starved += self._record.first is not None
        self._send()
        return self._move()

    def result(self, *, is_solved: bool, ticks: int) -> dict[str, Any]:
        """See :func:`run_episode`."""
        record = self._record
        splices = self._motion.splices.splices
        return {
            "is_solved": is_solved,
            "ticks": ticks,
            "first_action_tick": record.first,
            "executed": self._motion.executed,
            "inferences": record.inferences,
            "starved": record.starved,
            "splice_steps": [_largest(each.step) for each in splices if each.step is not None],
            "splice_shifts": [_largest(each.shift) for each in splices if each.shift is not None],
            "jerk_m_s3": jerk_of(record.positions, self._conditions.period),
            "ages": record.ages,
            "queue": record.queue,
        }

    def _receive(self, at: Nanos) -> None:
        """Let an answer come whose time has passed; one that comes with a tick is in time."""
        if self._under_way is not None and self._under_way[0] <= at:
            self._now, asked, answer = self._under_way
            self._under_way = None
            self._mailbox.answered(asked, answer)

    def _send(self) -> None:
        """Ask the policy for what was left in the mailbox; its answer is under way from now on."""
        asked = None if self._under_way is not None else self._mailbox.take_request()
        if asked is None:
            return
        self._record.inferences += 1
        conditions = self._conditions
        network = conditions.network if self._arm.is_remote else 0
        took = conditions.answer - (conditions.network - network)
        actions = self._policy(asked.observation)[: self._arm.executed]
        answer = Answer(actions=actions, round_trip=took, server=took - network)
        self._under_way = (self._now + took, asked, answer)

    def _move(self) -> bool:
        command = self._hand.command
        if command is None:
            command = hold(GRIPPER + 1, self._gripper)
        else:
            self._gripper = float(command[GRIPPER])
        is_solved = self._world.step(command)
        self._record.queue.append(self._motion.queue.remaining)
        if self._record.first is not None:
            self._record.positions.append(self._world.position().copy())
        return is_solved


def jerk_of(positions: Sequence[NDArray[np.float64]], period: Nanos) -> float:
    """Root of the mean square of the hand's jerk, m/s3, from its places at successive ticks."""
    if len(positions) < 4:
        return 0.0
    thirds = np.diff(np.array(positions), 3, axis=0) / to_seconds(period) ** 3
    return round(float(np.sqrt((thirds**2).sum(1).mean())), 4)


def _largest(per_component: NDArray[Any]) -> float:
    """Of the hand's own components, the gripper left out."""
    return round(float(np.max(per_component[:GRIPPER])), 4)
