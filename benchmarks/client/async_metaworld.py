"""Meta-World and `mini` for the experiment on asynchronous inference: one open task, one policy.

Start reading at :class:`Bench`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from takt.cli.evaluating.in_process import InProcessPolicy
from takt.cli.evaluating.metaworld import INSTRUCTIONS, MetaworldEnvironment, MetaworldTask

__all__ = ["Bench", "TaskWorld"]


class TaskWorld:
    """A task as :mod:`benchmarks.client.async_robot` acts on it.

    Args:
        task: An open one.
    """

    def __init__(self, task: MetaworldTask) -> None:
        self.task = task
        self._environment = MetaworldEnvironment(task, instruction=INSTRUCTIONS[task.task][0])

    def reset(self, index: int) -> None:
        """Go to a start."""
        self._environment.reset(index)

    def observe(self) -> Mapping[str, object]:
        """Picture, gripper and instruction, in openpi's keys."""
        return self._environment.observe()

    def step(self, action: NDArray[np.floating]) -> bool:
        """Carry out one action; whether the task is solved now."""
        return self._environment.step(action)

    def position(self) -> NDArray[np.float64]:
        """Where the hand is, metres."""
        return self.task.vector[:3]


class Bench:
    """What one process needs: a policy, and the task that is open.

    One task at a time, because MuJoCo's rendering contexts get in each other's way.

    Args:
        seed: Of starts and goals.
    """

    def __init__(self, *, seed: int) -> None:
        self._seed = seed
        self._world: TaskWorld | None = None
        self._policy: InProcessPolicy | None = None

    @property
    def policy(self) -> InProcessPolicy:
        """`mini` on one thread, loaded when it is first wanted.

        Begun with the name of a start, it makes the k-th chunk with the same noise whatever asks
        for it: arms that are compared differ in when they ask and in nothing else.
        """
        if self._policy is None:
            self._policy = InProcessPolicy("mini")
        return self._policy

    def world(self, task: str) -> TaskWorld:
        """A task, opened if it is not."""
        if self._world is None or self._world.task.task != task:
            self.close()
            self._world = TaskWorld(MetaworldTask(task, seed=self._seed))
        return self._world

    def close(self) -> None:
        """Give the renderer back."""
        world, self._world = self._world, None
        if world is not None:
            with suppress(Exception):
                world.task.close()
