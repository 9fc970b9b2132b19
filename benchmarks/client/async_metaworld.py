"""Meta-World and `mini` for the experiment on asynchronous inference: one open task, one policy.

Start reading at :class:`Bench`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from takt.cli.evaluating.metaworld import INSTRUCTIONS, MetaworldEnvironment, MetaworldTask
from takt.client.answer import ActionArray
from takt.core.request import Stage
from takt.doors.openpi_keys import read_observation
from takt.policies.catalog import open_policy
from takt.policies.interface import Placement
from takt.schema.row import Row, RowRequest

__all__ = ["Bench", "SeededPolicy", "TaskWorld"]


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


class SeededPolicy:
    """`mini` in this process, on one thread, with noise that depends on the start alone.

    The k-th chunk of a start is made with the same noise whatever asks for it, so arms that are
    compared differ in when they ask and in nothing else.
    """

    def __init__(self) -> None:
        parts = open_policy("mini")
        self.spec = parts.spec
        self._preprocessor = parts.preprocessor()
        self._decoder = parts.decoder()
        self._network = parts.network(Placement(kv_slots=1))
        self._network.load()
        self._network.warm()
        for stage in (Stage.PREFIX, Stage.DENOISE):
            self._network.enter_lane(stage)
        self._slot = {
            tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in self.spec.slot_tensors
        }
        self._session, self._sequence = "", 0

    def begin(self, session: str) -> None:
        """An episode begins; ``session`` names its start."""
        self._session, self._sequence = session, 0

    def ask(self, values: Mapping[str, object]) -> ActionArray:
        """The chunk for an observation, shape ``(horizon, action_dim)``."""
        request = RowRequest(session=self._session, sequence=self._sequence, seed=0)
        self._sequence += 1
        observation = read_observation(values, self.spec.observation)
        header = self._preprocessor.write(observation, self._slot, request)
        row = Row(header, self._slot)
        self._network.prefix([row], size=1, layout=header.layout, kv_slots=[0])
        chunks = self._network.denoise([row], size=1, layout=header.layout, kv_slots=[0])
        assert chunks is not None
        actions = self._decoder.decode(chunks[0], row)
        actions.flags.writeable = False
        return actions


class Bench:
    """What one process needs: a policy, and the task that is open.

    One task at a time, because MuJoCo's rendering contexts get in each other's way.

    Args:
        seed: Of starts and goals.
    """

    def __init__(self, *, seed: int) -> None:
        self._seed = seed
        self._world: TaskWorld | None = None
        self._policy: SeededPolicy | None = None

    @property
    def policy(self) -> SeededPolicy:
        """Loaded when it is first wanted."""
        if self._policy is None:
            self._policy = SeededPolicy()
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
