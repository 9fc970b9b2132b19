"""The numbers of the late-server contract, which whoever sets up a robot chooses.

They are checked when they are made, so a robot is never driven by impossible ones.

Start reading at :class:`ContractRules`; :mod:`takt.robot.contract` obeys them.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from takt.errors import ConfigError
from takt.robot.holding import HoldMode
from takt.robot.joints import JointLimit, check_components, check_limit, widened
from takt.units import MILLISECOND, SECOND, Nanos

__all__ = ["ContractRules", "ResumeRule"]

ResumeRule: TypeAlias = Literal["manual", "auto_if_still"]
"""What ends a hold: somebody who says so; or a valid action while it stands still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractRules:
    """When a robot degrades, holds and stops, and how it resumes."""

    max_action_age: Nanos = 2 * SECOND
    """Greatest age of an action that is executed, from its observation on; for a blended action,
    from that of its newest part on."""
    t_hold: Nanos = 500 * MILLISECOND
    """Time from the last valid action within which the robot holds. Until then it repeats the
    pose (ramps its velocity down), and an action that comes is executed at once."""
    t_stop: Nanos | None = 10 * SECOND
    """Time in HOLD after which it stops; None: never."""
    hold_mode: HoldMode = "position"
    """What actions command, and so how the robot holds."""
    deceleration: JointLimit | None = None
    """How fast a velocity is ramped to zero, per second; needed in velocity mode."""
    kept: tuple[int, ...] = ()
    """Components that keep their last command while others are ramped, such as a gripper."""
    resume: ResumeRule = "manual"
    """What ends a hold."""
    max_start_jump: JointLimit | None = None
    """Largest distance between the first action after IDLE or HOLD and the robot, per component;
    a queue that begins farther away is flushed. None: any; not with ``auto_if_still``."""
    max_still_step: JointLimit | None = None
    """Largest change of the measured pose from tick to tick at which the robot stands still;
    None: it stands still when its commands do."""
    resume_ramp: Nanos = 500 * MILLISECOND
    """Time after IDLE or HOLD in which the speed rises to full; 0: at once."""
    degraded_speed: float = 1.0
    """Share of the full speed in DEGRADED, above 0 up to 1."""
    max_rejections: int = 3
    """Chunks rejected in a row that stop the robot."""

    def __post_init__(self) -> None:
        _check_durations(self)
        for name in ("deceleration", "max_start_jump", "max_still_step"):
            check_limit(name, getattr(self, name))
        check_components("kept", self.kept)
        _check_modes(self)
        if not 0 < self.degraded_speed <= 1:
            raise ConfigError(f"degraded_speed must lie above 0 up to 1, got {self.degraded_speed}")
        if self.max_rejections < 1:
            raise ConfigError(f"max_rejections must be at least 1, got {self.max_rejections}")

    def check_action_dim(self, action_dim: int) -> None:
        """Refuse actions that these rules do not fit.

        Raises:
            ConfigError: A limit has another number of components than an action, or a component
                that is kept does not exist.
        """
        for name in ("deceleration", "max_start_jump", "max_still_step"):
            widened(name, getattr(self, name), action_dim)
        if max(self.kept, default=0) >= action_dim:
            raise ConfigError(f"kept names {list(self.kept)} of actions of {action_dim}")


def _check_durations(rules: ContractRules) -> None:
    for name in ("max_action_age", "t_hold", "t_stop"):
        duration = getattr(rules, name)
        if duration is not None and duration <= 0:
            off = "; None switches it off" if name == "t_stop" else ""
            raise ConfigError(f"{name} must be positive, got {duration} ns{off}")
    if rules.resume_ramp < 0:
        raise ConfigError(f"resume_ramp must be at least 0, got {rules.resume_ramp} ns")


def _check_modes(rules: ContractRules) -> None:
    for name, known in (("hold_mode", HoldMode), ("resume", ResumeRule)):
        if getattr(rules, name) not in get_args(known):
            raise ConfigError(
                f"{name} must be one of {', '.join(get_args(known))}, got {getattr(rules, name)!r}"
            )
    if rules.hold_mode == "velocity" and rules.deceleration is None:
        raise ConfigError("deceleration must be given in velocity mode: velocities are ramped")
    if rules.resume == "auto_if_still" and rules.max_start_jump is None:
        raise ConfigError("max_start_jump must be given with auto_if_still")
