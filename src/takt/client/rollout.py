"""Runs a policy on an environment, simulated or real, and says whether the task was solved.

The loop is the plainest one: look, ask for a chunk, execute the first actions of it, look again.
The world stands still while a chunk is asked for, so this measures what a policy can do and not
how fast it is served; :mod:`takt.client.realtime` runs the same environments on the wall clock.
It knows neither cameras nor models: an :class:`Environment` gives observations in the policy's
keys, and whatever answers them gives chunks.

Start reading at :func:`run_episode`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from takt.client.answer import ActionArray
from takt.errors import ConfigError, UsageError

__all__ = [
    "Ask",
    "EndingEnvironment",
    "Environment",
    "EpisodeResult",
    "EpisodeRules",
    "Moment",
    "is_over",
    "run_episode",
]

Ask: TypeAlias = Callable[[Mapping[str, object]], ActionArray]
"""Answers an observation with a chunk, shape ``(horizon, action_dim)``."""

_CHUNK_RANK = 2


class Environment(Protocol):
    """Something that can be looked at and acted on."""

    def reset(self, index: int) -> None:
        """Go to a start.

        Args:
            index: Which one; the same index is the same start.
        """
        ...

    def observe(self) -> Mapping[str, object]:
        """What the policy may know now, by the keys it takes."""
        ...

    def step(self, action: ActionArray) -> bool:
        """Execute one action, shape ``(action_dim,)``.

        Returns:
            Whether the task is solved now.
        """
        ...


@runtime_checkable
class EndingEnvironment(Environment, Protocol):
    """An environment whose episodes may end without a solution; it must not be stepped then."""

    @property
    def is_over(self) -> bool:
        """The episode has ended."""
        ...


def is_over(environment: Environment) -> bool:
    """Whether the episode has ended by itself, where the environment knows of that."""
    return isinstance(environment, EndingEnvironment) and environment.is_over


@dataclass(frozen=True, kw_only=True)
class EpisodeRules:
    """How an episode goes."""

    max_steps: int = 200
    """Actions after which the task counts as not solved."""
    execute: int | None = None
    """Actions of a chunk to execute before the next is asked for; None: all."""

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise ConfigError(f"max_steps must be at least 1, got {self.max_steps}")
        if self.execute is not None and self.execute < 1:
            raise ConfigError(f"execute must be at least 1, got {self.execute}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Moment:
    """The environment before an action, for those who look on."""

    index: int
    """Start of the episode."""
    step: int
    """Actions executed before."""
    observation: Mapping[str, object]
    """What the chunk was made from, not newer than the chunk."""
    action: ActionArray
    """The action about to be executed."""


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """How an episode went."""

    index: int
    """Start of the episode."""
    is_solved: bool
    """Whether the task was solved within the steps."""
    steps: int
    """Actions executed."""
    chunks: int
    """Chunks asked for."""


def _look_away(moment: Moment) -> None:
    del moment


def run_episode(
    environment: Environment,
    ask: Ask,
    rules: EpisodeRules,
    *,
    index: int,
    look: Callable[[Moment], None] = _look_away,
) -> EpisodeResult:
    """Run one episode until the task is solved, it ends by itself, or the steps are used up.

    Args:
        environment: What to act on.
        ask: Where chunks come from.
        rules: How long, and how much of each chunk.
        index: Which start.
        look: Called before each action.

    Returns:
        How it went.

    Raises:
        UsageError: ``ask`` gave no chunk of finite actions; nothing of it was executed.
    """
    environment.reset(index)
    steps = chunks = 0
    is_solved = has_ended = False
    while not has_ended and steps < rules.max_steps:
        observation = environment.observe()
        chunk = _checked(ask(observation))[: rules.execute]
        chunks += 1
        for action in chunk[: rules.max_steps - steps]:
            look(Moment(index=index, step=steps, observation=observation, action=action))
            steps += 1
            is_solved = environment.step(action)
            has_ended = is_solved or is_over(environment)
            if has_ended:
                break
    return EpisodeResult(index=index, is_solved=is_solved, steps=steps, chunks=chunks)


def _checked(chunk: ActionArray) -> ActionArray:
    if chunk.ndim != _CHUNK_RANK or not chunk.size or not np.isfinite(chunk).all():
        raise UsageError(
            f"expected a chunk (horizon, action_dim) of finite actions, got shape {chunk.shape}"
        )
    return chunk
