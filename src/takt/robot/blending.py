"""Joins a chunk that arrives with the actions still queued, timestep by timestep.

Both plans answer different observations, so where they overlap the robot would jump from one to
the other. A blend mixes the two actions of each timestep. It aligns them by timestep, never by
arrival: the queue has dropped what was executed, so a merge cannot pull a robot back.

Components are mixed one by one, so do not blend rotations as quaternions, and list a gripper
under ``kept``: half-way between open and closed is no plan.

Start reading at :func:`merge_rule`.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, cast

import numpy as np

from takt.errors import ConfigError, UsageError
from takt.robot.action_queue import MergeRule, TimedChunk, latest_only
from takt.robot.joints import Vector, check_components

__all__ = ["WEIGHTS", "Blend", "MergeName", "merge_rule", "rows_between"]

MergeName: TypeAlias = Literal["latest_only", "weighted_average", "average", "conservative"]
"""The blends there are by name, those of LeRobot's ``aggregate_fn_name``."""

Blend: TypeAlias = Callable[[Vector, Vector], Vector]
"""The action to execute, given the queued and the arrived one of a timestep, in that order."""

WEIGHTS: Mapping[MergeName, tuple[float, float]] = {
    "latest_only": (0.0, 1.0),
    "weighted_average": (0.3, 0.7),
    "average": (0.5, 0.5),
    "conservative": (0.7, 0.3),
}
"""Shares of the queued and the arrived action: ``action = old_share * old + new_share * new``."""


def merge_rule(
    rule: MergeName | Blend = "latest_only", *, kept: tuple[int, ...] = ()
) -> MergeRule[Vector]:
    """How a chunk joins the actions still queued.

    On timesteps that both have:

    - ``latest_only``: ``action = new``;
    - ``weighted_average``: ``action = 0.3 * old + 0.7 * new``;
    - ``average``: ``action = 0.5 * old + 0.5 * new``;
    - ``conservative``: ``action = 0.7 * old + 0.3 * new``;
    - a function: ``action = function(old, new)``, each of shape ``(action_dim,)``.

    On the others the new chunk alone counts. A queued action may itself be a blend, so after
    several chunks an action can hold a little of each.

    Args:
        rule: A name or a function; it must not modify its arguments. One that takes torch tensors
            is wrapped in :func:`takt.client.from_torch.from_torch`.
        kept: Components that are not blended, such as a gripper: they are those of ``new``.

    Raises:
        ConfigError: There is no such rule, or ``kept`` are no positions.

    Source:
        The functions LeRobot's asynchronous client calls by these names; the formulas agree.
    """
    check_components("kept", kept)
    if callable(rule):
        return _Blending(rule, None, kept)
    if rule not in WEIGHTS:
        known = ", ".join(WEIGHTS)
        raise ConfigError(f"no merge rule {rule!r}; there are: {known}, or a function")
    return latest_only if rule == "latest_only" else _Blending(None, WEIGHTS[rule], kept)


class _Blending:
    """A merge rule for chunks that are arrays, shape ``(steps, action_dim)``."""

    def __init__(
        self,
        function: Blend | None,
        weights: tuple[float, float] | None,
        kept: tuple[int, ...],
    ) -> None:
        self._function = function
        self._weights = weights
        self._kept = list(kept)

    def __call__(
        self, queued: TimedChunk[Vector], arrived: TimedChunk[Vector], next_timestep: int
    ) -> TimedChunk[Vector]:
        """Blend the timesteps that both have and that are not executed yet."""
        begin = max(next_timestep, queued.first_timestep, arrived.first_timestep)
        end = min(queued.end, arrived.end)
        if begin >= end:
            return arrived
        old = rows_between(queued, begin, end)
        new = rows_between(arrived, begin, end)
        if old.shape != new.shape or max(self._kept, default=0) >= new.shape[1]:
            raise UsageError(
                f"cannot blend actions of shape {new.shape[1:]} with {old.shape[1:]},"
                f" keeping {self._kept}"
            )
        whole = rows_between(arrived, arrived.first_timestep, arrived.end)
        plan = whole.astype(np.result_type(whole, np.float32))
        mixed = plan[begin - arrived.first_timestep : end - arrived.first_timestep]
        mixed[:] = self._mix(old, new)
        mixed[:, self._kept] = new[:, self._kept]
        if not np.isfinite(mixed).all():
            raise UsageError("the merge rule made NaN or infinity of finite actions")
        plan.flags.writeable = False
        return TimedChunk(arrived.first_timestep, plan, arrived.origin, blended_end=end)

    def _mix(self, old: Vector, new: Vector) -> Vector:
        if self._weights is not None:
            return self._weights[0] * old + self._weights[1] * new
        function = cast("Blend", self._function)
        try:
            # Copies: a function may return the same array every time, filled anew.
            rows = [np.array(function(a, b)) for a, b in zip(old, new, strict=True)]
        except (AttributeError, TypeError) as error:
            raise UsageError(
                f"the merge function did not take NumPy arrays ({error}); one for torch tensors is"
                " wrapped: merge=takt.client.from_torch(function)"
            ) from error
        for row in rows:
            if row.shape != new.shape[1:]:
                raise UsageError(
                    f"the merge function must return shape {new.shape[1:]}, got {row.shape}"
                )
        return np.stack(rows)


def rows_between(chunk: TimedChunk[Vector], begin: int, end: int) -> Vector:
    """Actions of the timesteps ``begin..end``, shape ``(end - begin, action_dim)``."""
    first = chunk.first_timestep
    actions: object = chunk.actions
    if isinstance(actions, np.ndarray):
        return cast("Vector", actions)[begin - first : end - first]
    return np.stack([chunk.actions[i] for i in range(begin - first, end - first)])
