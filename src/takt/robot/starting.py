"""Whether a robot may begin to move: near the plan's first action, and standing still.

A plan that begins somewhere else would make the robot jump. Where it stands is what it measures;
its last command is believed only while nobody can have moved it.
"""

import numpy as np

from takt.errors import UsageError
from takt.robot.contract_rules import ContractRules
from takt.robot.joints import Vector, widened

__all__ = ["is_far", "is_still"]


def is_far(rules: ContractRules, first: Vector, pose: Vector | None, held: Vector | None) -> bool:
    """Whether a start with this action would jump.

    Args:
        rules: What a jump is.
        first: The action, shape ``(action_dim,)``.
        pose: Where the robot measures itself; None: not known.
        held: The command that holds it; None: nothing does.

    Returns:
        True also where nobody knows where the robot is.

    Raises:
        UsageError: ``pose`` has another shape than the action.
    """
    if rules.max_start_jump is None:
        return False
    here = _standing(rules, first, pose, held)
    if here is None:
        return True
    if here.shape != first.shape:
        raise UsageError(f"pose: expected shape {first.shape}, got {here.shape}")
    jump = np.abs(first - here)
    # Compared so that NaN is far.
    return not bool((jump <= widened("max_start_jump", rules.max_start_jump, jump.size)).all())


def is_still(rules: ContractRules, before: Vector | None, pose: Vector | None) -> bool:
    """Whether the measured pose stayed where it was one tick before, as far as that counts."""
    if rules.max_still_step is None:
        return True
    if before is None or pose is None or before.shape != pose.shape:
        return False
    step = np.abs(pose - before)
    return bool((step <= widened("max_still_step", rules.max_still_step, step.size)).all())


def _standing(
    rules: ContractRules, first: Vector, pose: Vector | None, held: Vector | None
) -> Vector | None:
    """Where a start sets out from, in the units of the actions; None: not known."""
    if rules.hold_mode == "position":
        return held if pose is None else pose
    at_rest = np.zeros(first.shape)
    if held is not None:
        kept = list(rules.kept)
        at_rest[kept] = held[kept]
    return at_rest
