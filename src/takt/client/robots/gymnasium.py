"""A Gymnasium environment as a robot: one step per command, the latest observation on demand.

Gymnasium itself is not imported; anything with its ``reset`` and ``step`` will do. The environment
is used from the thread that makes the calls, one thread at a time: a control loop that ticks in a
thread of its own must be closed before :meth:`GymnasiumRobot.reset`.

The control loop is not told that an episode is over. :attr:`GymnasiumRobot.is_over` says so, and
from then on commands are dropped, because a finished environment must not be stepped. Whoever runs
the episode looks there: :func:`takt.client.realtime.run_realtime_episode` does, and a plain
:class:`~takt.client.loop.ControlLoop` holds with ``Hooks(is_enabled=lambda: not robot.is_over)``.

Start reading at :class:`GymnasiumRobot`.
"""

from collections.abc import Mapping
from typing import Any, Protocol, SupportsFloat, cast

import numpy as np

from takt.client.robots.described import RobotDescription
from takt.errors import UsageError
from takt.robot.joints import Vector

__all__ = ["RENDER", "GymnasiumEnv", "GymnasiumRobot"]

RENDER = "render()"
"""In place of a key of the observation: the picture that the environment renders."""
_SEPARATOR = "/"


class GymnasiumEnv(Protocol):
    """What is used of ``gymnasium.Env``; ``action_space``, ``render`` and ``close`` where they
    are.
    """

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: the observation and what else is known."""
        ...

    def step(self, action: Any, /) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:  # noqa: ANN401
        """Execute an action: observation, reward, terminated, truncated, and what else is known."""
        ...


class GymnasiumRobot:
    """One environment; also an :class:`~takt.client.rollout.Environment`.

    Args:
        env: The environment; not a vector of them.
        keys: Where each of the policy's keys is found: a key of the environment's observation,
            ``a/b`` for one within another, empty for the whole observation, or :data:`RENDER`.
            For example ``{"observation/state": "agent_pos", "observation/image": "pixels/top"}``.
        instruction: What the policy is told; None: it takes no instruction.
        success_key: Key of ``info`` that says whether the task is solved; missing counts as no.
        seed: Episode ``index`` is reset with ``seed + index``.
        description: Names and units of the components, where they are known.

    Raises:
        UsageError: The environment is a vector of them, or takes no vector of numbers.
    """

    def __init__(
        self,
        env: GymnasiumEnv,
        *,
        keys: Mapping[str, str],
        instruction: str | None = None,
        success_key: str = "is_success",
        seed: int = 0,
        description: RobotDescription | None = None,
    ) -> None:
        self._env = env
        self._keys = dict(keys)
        self._instruction = instruction
        self._success_key = success_key
        self._seed = seed
        self._description = description or RobotDescription()
        self._shape, self._dtype = _action_form(env)
        self._latest: object = None
        self._is_over = True
        self._is_solved = False
        self._dropped = 0

    @property
    def is_over(self) -> bool:
        """The episode was terminated or truncated, or none was begun."""
        return self._is_over

    @property
    def is_solved(self) -> bool:
        """The environment said so in this episode."""
        return self._is_solved

    @property
    def dropped(self) -> int:
        """Commands after the end of the episode, which moved nothing."""
        return self._dropped

    @property
    def action_dim(self) -> int | None:
        """Components of an action; None: the environment does not say."""
        return None if self._shape is None else self._shape[0]

    def describe(self) -> RobotDescription:
        """See :class:`~takt.client.robots.described.DescribedRobot`."""
        return self._description

    def reset(self, index: int) -> None:
        """Begin an episode.

        Args:
            index: Which one; the same index is the same start.
        """
        self._latest, _ = self._env.reset(seed=self._seed + index)
        self._is_over = self._is_solved = False
        self._dropped = 0

    def observe(self) -> Mapping[str, object]:
        """What is seen now, by the policy's keys; pictures are rendered now.

        Raises:
            UsageError: The observation has no such key, or no episode was begun.
        """
        if self._latest is None:
            raise UsageError("reset() the environment before it is observed")
        seen = {key: self._find(path) for key, path in self._keys.items()}
        return seen if self._instruction is None else {**seen, "prompt": self._instruction}

    def act(self, action: Vector, /) -> object:
        """Step the environment once; dropped when the episode is over.

        Raises:
            UsageError: The action has another shape than the environment takes, or does not fit
                its number format.
        """
        if self._is_over:
            self._dropped += 1
            return
        if self._shape is not None and action.shape != self._shape:
            raise UsageError(f"action: expected shape {self._shape}, got {action.shape}")
        # Environments may keep and change what they are given, and the command is read-only.
        with np.errstate(over="ignore"):
            values = np.array(action, self._dtype)
        if not np.isfinite(values).all():
            raise UsageError(f"action: {action.tolist()} has no finite {values.dtype}")
        self._latest, _, terminated, truncated, info = self._env.step(values)
        self._is_solved = self._is_solved or bool(info.get(self._success_key, False))
        self._is_over = bool(terminated) or bool(truncated)

    def step(self, action: Vector) -> bool:
        """Step the environment once; whether the task is solved now."""
        self.act(action)
        return self._is_solved

    def close(self) -> None:
        """Close the environment, where it can be."""
        close = getattr(self._env, "close", None)
        if close is not None:
            close()

    def _find(self, path: str) -> object:
        if path == RENDER:
            found = self._rendered()
        else:
            found = self._latest
            for part in filter(None, path.split(_SEPARATOR)):
                found = _inside(found, part, path)
        # Fresh: an environment may fill the same array at every step, and it is sent later.
        return np.array(cast("Any", found)) if isinstance(found, np.ndarray) else found

    def _rendered(self) -> object:
        picture: object = cast("Any", self._env).render()
        if not isinstance(picture, np.ndarray):
            raise UsageError(
                f"render() returned {type(picture).__name__}; make the environment with"
                " render_mode='rgb_array'"
            )
        return cast("object", picture)


def _inside(found: object, part: str, path: str) -> object:
    if not isinstance(found, Mapping):
        raise UsageError(f"{path}: the observation has no keys there, but {type(found).__name__}")
    entries = cast("Mapping[str, object]", found)
    if part not in entries:
        known = ", ".join(map(str, entries))
        raise UsageError(f"{path}: the observation has no key {part!r}; it has: {known}")
    return entries[part]


def _action_form(env: GymnasiumEnv) -> tuple[tuple[int, ...] | None, Any]:
    """Shape and number format of an action; None where the environment does not say."""
    if getattr(env, "num_envs", None) is not None:
        raise UsageError("expected one environment, got a vector of them")
    space: Any = getattr(env, "action_space", None)
    if space is None:
        return None, np.float32
    shape: tuple[int, ...] | None = getattr(space, "shape", None)
    is_continuous = np.dtype(getattr(space, "dtype", None) or "O").kind == "f"
    if shape is None or len(shape) != 1 or not is_continuous:
        raise UsageError(f"expected actions that are vectors of numbers, got {space}")
    return tuple(shape), space.dtype
