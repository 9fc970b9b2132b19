"""A robot that keeps the contract for late servers, on a clock of its own."""

from typing import Any

import numpy as np

from takt.robot.contract import Directive, LateServerContract, Proposal
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import Cause, State
from takt.units import Nanos, ms

PERIOD = ms(20)


class Robot:
    """A contract with a clock of its own; every tick lasts one period."""

    def __init__(self, **rules: Any) -> None:  # noqa: ANN401 - fields of ContractRules
        self.contract = LateServerContract(ContractRules(**rules), control_period=PERIOD)
        self.now: Nanos = ms(1000)

    def tick(
        self,
        value: float | None = 0.0,
        *,
        age: Nanos = 0,
        pose: float | None = 0.0,
        **sight: bool,
    ) -> Directive:
        self.now += PERIOD
        proposal = None
        if value is not None:
            proposal = Proposal(values=np.array([value]), observed=self.now - age)
        here = None if pose is None else np.array([pose])
        return self.contract.tick(self.now, proposal=proposal, pose=here, **sight)

    def until(self, state: State, value: float | None = None, **sight: Any) -> Directive:  # noqa: ANN401
        """Tick without an action until the state is entered."""
        for _ in range(10_000):
            directive = self.tick(value, **sight)
            if directive.state is state:
                return directive
        raise AssertionError(state)


def moving(**rules: Any) -> Robot:  # noqa: ANN401 - fields of ContractRules
    robot = Robot(**{"resume_ramp": 0, **rules})
    robot.contract.start()
    assert robot.tick().executes
    return robot


def holding(**rules: Any) -> Robot:  # noqa: ANN401 - fields of ContractRules
    robot = moving(**rules)
    robot.until(State.HOLD)
    return robot


def stopped(**rules: Any) -> Robot:  # noqa: ANN401 - fields of ContractRules
    robot = moving(**rules)
    robot.contract.stop()
    assert robot.tick().state is State.STOPPED
    return robot


def cause_of(directive: Directive) -> Cause | None:
    return None if directive.change is None else directive.change.cause
