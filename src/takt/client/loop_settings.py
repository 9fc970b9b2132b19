"""What a control loop is told before it starts.

Start reading at :class:`LoopSettings`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from takt.client.pacing import period_of
from takt.errors import ConfigError
from takt.robot.action_queue import FlushRule
from takt.robot.blending import Blend, MergeName
from takt.robot.contract import StateChange
from takt.robot.contract_rules import ContractRules
from takt.robot.guard import GuardLimits, GuardMode
from takt.robot.joints import Vector
from takt.robot.replanning import ReplanningRule, ThresholdRule
from takt.units import Nanos, to_ms

__all__ = ["Hooks", "LoopSettings", "Robot"]

_WHOLE = 1e-6
"""How far the quotient of two rates may lie from a whole number."""


class Robot(Protocol):
    """What a control loop needs of a robot. Both calls are made from its thread and should take a
    small part of a tick. A robot may also say what its components are, see
    :class:`~takt.client.robots.described.DescribedRobot`.
    """

    def observe(self) -> Mapping[str, object]:
        """What the robot sees now, by the keys the policy takes.

        Return fresh arrays: they are sent later. Cameras that take their time belong into
        :class:`~takt.client.cameras.Cameras`.
        """
        ...

    def act(self, action: Vector, /) -> object:
        """Send a command, shape ``(action_dim,)``, read-only."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a control loop asks and tells besides; all are called from its thread."""

    pose: Callable[[Mapping[str, object]], Vector] | None = None
    """Reads from an observation where the robot is, shape ``(action_dim,)``, in the units of an
    action. With it the robot is observed at every tick, unless it is stopped; it is needed for
    ``max_start_jump``."""
    is_enabled: Callable[[], bool] | None = None
    """Whether the enabling button is held; a robot that is let go holds. An error counts as let
    go."""
    on_stop: Callable[[StateChange], None] | None = None
    """Called once per stop: brake, disable the drives, tell the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """How one robot is driven. The defaults suit an arm that takes positions."""

    control_hz: float = 30.0
    """Commands per second."""
    policy_hz: float | None = None
    """Actions per second the policy was trained for; ``control_hz`` is a whole multiple of it, and
    the commands between two actions are interpolated. None: as ``control_hz``."""
    sync: bool = False
    """Ask only when every action is executed, and stand still for the answer; ``rule`` then counts
    for nothing. For comparisons, and for policies that must see the outcome of a whole chunk."""
    rule: ReplanningRule = field(default_factory=ThresholdRule)
    """When to ask; half of a chunk left by default."""
    merge: MergeName | Blend = "latest_only"
    """How a chunk joins the actions still queued."""
    leftovers: bool = True
    """Whether what is left of the queue goes with each observation to a model that takes it, so
    that the next chunk continues what the robot does meanwhile. Other models are not told."""
    after_cut: FlushRule = "replace"
    """What becomes of queued actions when the connection is lost. They are never executed beyond
    ``max_action_age``, whatever this says."""
    contract: ContractRules = field(default_factory=ContractRules)
    """When the robot degrades, holds and stops. Its ``kept`` components, such as a gripper, are
    neither blended nor interpolated."""
    limits: GuardLimits | None = None
    """What a command may be; None: anything finite."""
    guard: GuardMode = "enforce"
    """Whether commands outside ``limits`` are brought within or only counted."""
    max_faults: int = 3
    """Commands in a row that the robot did not take, after which it stops, latched."""

    def __post_init__(self) -> None:
        period_of(self.control_hz, "control_hz")
        period_of(self.action_hz, "policy_hz")
        ratio = self.control_hz / self.action_hz
        if round(ratio) < 1 or abs(ratio - round(ratio)) > _WHOLE * ratio:
            raise ConfigError(
                "control_hz must be a whole multiple of policy_hz,"
                f" got {self.control_hz} and {self.policy_hz}"
            )
        if self.max_faults < 1:
            raise ConfigError(f"max_faults must be at least 1, got {self.max_faults}")
        if self.limits is not None:
            self.contract.check_action_dim(self.limits.action_dim)

    @property
    def action_hz(self) -> float:
        """Actions per second."""
        return self.control_hz if self.policy_hz is None else self.policy_hz

    @property
    def commands_per_action(self) -> int:
        """Control ticks in which an action is carried out."""
        return round(self.control_hz / self.action_hz)

    @property
    def control_period(self) -> Nanos:
        """Time between two commands."""
        return period_of(self.control_hz, "control_hz")

    @property
    def action_period(self) -> Nanos:
        """Time between two actions."""
        return self.control_period * self.commands_per_action

    @property
    def most_actions(self) -> int:
        """Actions of a chunk that may be young enough when their turn comes."""
        return self.contract.max_action_age // self.action_period + 1

    @property
    def asking_rule(self) -> ReplanningRule:
        """When to ask, ``sync`` considered."""
        return ThresholdRule(threshold=0) if self.sync else self.rule

    def in_words(self) -> dict[str, object]:
        """For the head of an episode log."""
        rules = self.contract
        return {
            "control_hz": self.control_hz,
            "policy_hz": self.action_hz,
            "mode": "sync" if self.sync else "async",
            "merge": self.merge if isinstance(self.merge, str) else "function",
            "leftovers": self.leftovers,
            "max_action_age_ms": to_ms(rules.max_action_age),
            "t_hold_ms": to_ms(rules.t_hold),
            "t_stop_ms": None if rules.t_stop is None else to_ms(rules.t_stop),
            "hold_mode": rules.hold_mode,
            "resume": rules.resume,
            "guard": "none" if self.limits is None else self.guard,
        }
