"""Environments by name: what ``takt eval`` and ``takt robot`` run a policy in.

A name is judged before anything is opened, so that a mistyped option costs no simulator's start.

Start reading at :func:`chosen_environment`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from takt.cli.evaluating.metaworld import (
    INSTRUCTIONS,
    MAX_STEPS,
    NUM_GOALS,
    MetaworldEnvironment,
    MetaworldTask,
)
from takt.cli.named_values import by_name
from takt.client.robots.gymnasium import RENDER, GymnasiumRobot
from takt.client.rollout import Environment
from takt.errors import ConfigError, UsageError
from takt.robot.holding import HoldMode
from takt.robot.joints import Vector

__all__ = ["EnvironmentChoice", "Family", "Simulation", "chosen_environment"]

Family: TypeAlias = Literal["metaworld", "gymnasium"]

_METAWORLD_DIM = 4
_METAWORLD_GRIPPER = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Simulation:
    """An open environment, and how a robot in it is held."""

    environment: Environment
    hold: HoldMode
    """What its actions command: positions, or velocities and displacements."""
    kept: tuple[int, ...]
    """Components that keep their last command in a hold, such as a gripper's."""
    rest: Vector | None
    """Command that moves nothing; None: it takes positions, and nobody knows where it is."""
    close: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class EnvironmentChoice:
    """An environment that was asked for and is not open yet."""

    family: Family
    name: str
    """As the family spells it."""
    instruction: str | None
    """What the policy is told."""
    keys: tuple[tuple[str, str], ...] = ()
    """Gymnasium's: the policy's keys, and where each is found."""
    hold: HoldMode = "velocity"
    """What actions command."""

    def check(self, *, episodes: int, max_steps: int) -> None:
        """Refuse more episodes and steps than there are.

        Raises:
            UsageError: There are too few or too many.
        """
        is_bounded = self.family == "metaworld"
        if episodes < 1 or (is_bounded and episodes > NUM_GOALS):
            known = f"lie in 1..{NUM_GOALS}" if is_bounded else "be at least 1"
            raise UsageError(f"--episodes must {known}, got {episodes}")
        if is_bounded and max_steps > MAX_STEPS:
            raise UsageError(f"--max-steps: Meta-World ends after {MAX_STEPS}, got {max_steps}")

    def open(self, *, seed: int, black_images: bool = False) -> Simulation:
        """Open it.

        Args:
            seed: Decides starts and goals.
            black_images: Show the policy black pictures.

        Raises:
            ConfigError: Something is not installed.
            UsageError: There is no such environment, or no policy can act in it.
        """
        if self.family == "metaworld":
            return self._open_metaworld(seed, black_images=black_images)
        if black_images:
            raise UsageError("--black-images is for metaworld:TASK")
        return self._open_gymnasium(seed)

    def _open_metaworld(self, seed: int, *, black_images: bool) -> Simulation:
        task = MetaworldTask(self.name, seed=seed)
        environment = MetaworldEnvironment(
            task, instruction=self.instruction or "", black_images=black_images
        )
        return Simulation(
            environment=environment,
            hold="velocity",  # an action is how far the hand moves in a step
            kept=(_METAWORLD_GRIPPER,),
            rest=np.zeros(_METAWORLD_DIM),
            close=task.close,
        )

    def _open_gymnasium(self, seed: int) -> Simulation:
        robot = GymnasiumRobot(
            _made(self.name, renders=RENDER in dict(self.keys).values()),
            keys=dict(self.keys),
            instruction=self.instruction,
            seed=seed,
        )
        is_velocity = self.hold == "velocity"
        rest = np.zeros(robot.action_dim) if is_velocity and robot.action_dim else None
        return Simulation(environment=robot, hold=self.hold, kept=(), rest=rest, close=robot.close)


def chosen_environment(
    env: str,
    *,
    instruction: str | None = None,
    keys: Sequence[str] = (),
    hold: HoldMode | None = None,
) -> EnvironmentChoice:
    """The environment that options ask for.

    Args:
        env: ``metaworld:TASK`` or ``gymnasium:ID``.
        instruction: What the policy is told; None: the usual words for a Meta-World task.
        keys: For Gymnasium, ``POLICY_KEY=WHERE`` each.
        hold: For Gymnasium, what actions command; positions when None.

    Raises:
        UsageError: An option is impossible.
    """
    family, _, name = env.partition(":")
    if family == "metaworld" and name:
        if keys or hold is not None:
            raise UsageError("--key and --hold are for gymnasium:ID")
        return EnvironmentChoice(
            family="metaworld", name=name, instruction=_told(name, instruction)
        )
    if family == "gymnasium" and name:
        return EnvironmentChoice(
            family="gymnasium",
            name=name,
            instruction=instruction,
            keys=tuple(by_name("--key", map(_key, keys)).items()) or (("observation/state", ""),),
            hold=hold or "position",
        )
    raise UsageError(f"--env {env!r}: expected metaworld:TASK or gymnasium:ID")


def _told(task: str, instruction: str | None) -> str:
    told = instruction or next(iter(INSTRUCTIONS.get(task, ())), None)
    if told is None:
        known = ", ".join(INSTRUCTIONS)
        raise UsageError(
            f"--env metaworld:{task}: no task {task!r} among those with usual words: {known};"
            " give --instruction for another one that Meta-World has"
        )
    return told


def _key(given: str) -> tuple[str, str]:
    key, separator, where = given.partition("=")
    if not separator or not key:
        raise UsageError(
            f"--key {given!r}: expected POLICY_KEY=WHERE, such as observation/image={RENDER}"
        )
    return key, where


def _made(name: str, *, renders: bool) -> Any:  # noqa: ANN401 - no annotations that all share
    try:
        gymnasium: Any = importlib.import_module("gymnasium")
    except ImportError as error:
        raise ConfigError(f"Gymnasium comes with: pip install gymnasium ({error})") from error
    try:
        return gymnasium.make(name, **({"render_mode": "rgb_array"} if renders else {}))
    except (gymnasium.error.Error, ImportError) as error:
        raise UsageError(f"--env gymnasium:{name}: {error}") from error
