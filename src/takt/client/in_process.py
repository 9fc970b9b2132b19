"""A policy in the robot's own process, asked as a server is.

For a robot that carries its model, and for tests and examples without a server. The control loop
does not notice the difference: the policy runs in the thread that otherwise asks the server, and
what it raises is a failure that is counted.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np

from takt.client.answer import ActionArray, Answer, checked_actions
from takt.units import Nanos

__all__ = ["InProcess", "Policy"]

Policy = Callable[[Mapping[str, object]], ActionArray]
"""Gives the chunk for an observation, shape ``(horizon, action_dim)``, in the robot's units."""


class InProcess:
    """Stands where a :class:`~takt.client.connection.Connection` would.

    Give :class:`~takt.client.loop.ControlLoop` a ``connect`` that returns it:
    ``connect=lambda: InProcess(policy)``.

    Args:
        policy: Called from one thread at a time.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(self, policy: Policy, *, clock: Callable[[], Nanos] = time.monotonic_ns) -> None:
        self._policy = policy
        self._clock = clock
        self._asked = 0

    def infer(
        self,
        observation: Mapping[str, object],
        *,
        due_in: Nanos | None = None,
        expires_in: Nanos | None = None,
    ) -> Answer:
        """Run the policy.

        Raises:
            WireError: It gave no chunk of finite numbers.
        """
        del due_in, expires_in  # nobody else waits for this policy
        began = self._clock()
        actions = checked_actions(np.array(self._policy(observation)))
        actions.flags.writeable = False
        took = self._clock() - began
        self._asked += 1
        return Answer(
            actions=actions, round_trip=took, server=took, policy=took, sequence=self._asked - 1
        )

    def close(self) -> None:
        """Nothing is open."""
