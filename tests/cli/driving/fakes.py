"""Robots and connections of the tests of this folder."""

from collections.abc import Callable, Mapping

import numpy as np

from takt.cli.driving.robot import Behaviour, DrivenRobot
from takt.client.answer import Answer
from takt.testing import ManualClock
from takt.units import MILLISECOND, SECOND, Nanos, ms, seconds

TICK = 10 * MILLISECOND


def behaviour(**changes: object) -> Behaviour:
    """100 control ticks and 10 observations per second, 50 ms of slo."""
    chosen: dict[str, object] = {
        "model": "echo",
        "slo": ms(50),
        "control_hz": 100.0,
        "rate_hz": 10.0,
        **changes,
    }
    return Behaviour(**chosen)  # type: ignore[arg-type]


def robot(*, origin: Nanos = 0, end: Nanos = SECOND, **changes: object) -> DrivenRobot:
    return DrivenRobot("robot-1", behaviour(**changes), origin=origin, end=end)


def answer(
    *, horizon: int = 20, server: Nanos | None = 3 * MILLISECOND, state: float = 0.0
) -> Answer:
    actions = np.float32(state) + np.zeros((horizon, 2), np.float32)
    return Answer(actions=actions, round_trip=5 * MILLISECOND, server=server)


class ScriptedConnection:
    """Answers by a function."""

    def __init__(self, infer: Callable[[Mapping[str, object]], Answer]) -> None:
        self._infer = infer
        self.dues: list[Nanos | None] = []
        self.is_closed = False

    def infer(self, observation: Mapping[str, object], *, due_in: Nanos | None = None) -> Answer:
        self.dues.append(due_in)
        return self._infer(observation)

    def close(self) -> None:
        self.is_closed = True


class ManualStop:
    """The end of a run that somebody decides; waiting for it moves a clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.is_over = False

    def is_set(self) -> bool:
        return self.is_over

    def wait(self, timeout: float) -> bool:
        if not self.is_over:
            self._clock.advance(seconds(timeout))
        return self.is_over
