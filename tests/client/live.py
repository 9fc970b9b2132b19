"""A control loop with its threads, in real time, around a policy in this process."""

import threading
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from tests.client.rig import DIM, FakeRobot

from takt.client.backoff import Backoff
from takt.client.in_process import InProcess
from takt.client.loop import ControlLoop
from takt.client.loop_settings import LoopSettings
from takt.robot.contract_rules import ContractRules
from takt.units import MILLISECOND, seconds

PATIENCE = seconds(60)
# A pause of the computer must not end the motion that a test waits for: chunks last for seconds.
FAST = LoopSettings(
    control_hz=200.0,
    contract=ContractRules(max_action_age=seconds(60), t_hold=seconds(60), t_stop=None),
)
SOON = Backoff(base=MILLISECOND, most=MILLISECOND)


def still(observation: Mapping[str, object]) -> np.ndarray:
    del observation
    return np.zeros((2000, DIM))


def loop_of(**options: object) -> ControlLoop:
    arguments = {"connect": lambda: InProcess(still), "settings": FAST, "backoff": SOON, **options}
    return ControlLoop(FakeRobot(), **arguments)  # type: ignore[arg-type]


def until(done: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(20_000):
        if done():
            return
        pause.wait(0.001)
    pytest.fail("not within 20,000 looks")
