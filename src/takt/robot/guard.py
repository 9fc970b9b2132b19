"""Looks at every chunk before a robot executes it, and bounds what leaves.

This is no safety function: it keeps the obvious from being sent, counts it, and leaves the cell's
safety to the robot's controller. What is within the limits passes bit for bit, as the very same
object. Numbers that are not finite never pass, in either mode.

A limit bounds the next command by the one before it. Where the robot already stands outside its
range, it may stay or come back; it may not go further out.

Start reading at :meth:`Guard.check`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from takt.errors import ConfigError, UsageError
from takt.robot.joints import JointLimit, Vector, check_limit, widened
from takt.schema.spec import ActionSpec
from takt.units import Nanos, to_seconds

__all__ = ["Guard", "GuardLimits", "GuardMode", "Verdict", "Violation"]

GuardMode: TypeAlias = Literal["observe", "enforce"]
"""Count what is outside the limits and send it all the same; or bring it within."""

Violation: TypeAlias = Literal["non_finite", "range", "step", "velocity"]
"""What is wrong with a number of an action."""

_CHUNK_RANK = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLimits:
    """What an action may be, in the units of the policy."""

    action_dim: int
    """Components of an action."""
    low: tuple[float | None, ...] | None = None
    """Least value of each component; None: no bound."""
    high: tuple[float | None, ...] | None = None
    """Greatest value of each component; None: no bound."""
    max_step: JointLimit | None = None
    """Largest change from one command to the next."""
    max_velocity: JointLimit | None = None
    """Largest change per second; times the control period it is a second limit of a step."""

    def __post_init__(self) -> None:
        if self.action_dim < 1:
            raise ConfigError(f"action_dim must be at least 1, got {self.action_dim}")
        for name in ("max_step", "max_velocity"):
            limit: JointLimit | None = getattr(self, name)
            check_limit(name, limit)
            widened(name, limit, self.action_dim)
        low, high = _bounds(self.low, self.action_dim, -1), _bounds(self.high, self.action_dim, 1)
        if not (low < high).all():
            raise ConfigError(f"low must lie below high, got {self.low} and {self.high}")

    @classmethod
    def of(
        cls,
        spec: ActionSpec,
        *,
        max_step: JointLimit | None = None,
        max_velocity: JointLimit | None = None,
    ) -> "GuardLimits":
        """The bounds a policy declares for its axes, with limits of one's own."""
        return cls(
            action_dim=spec.action_dim,
            low=tuple(axis.low for axis in spec.axes) or None,
            high=tuple(axis.high for axis in spec.axes) or None,
            max_step=max_step,
            max_velocity=max_velocity,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verdict:
    """What became of a chunk."""

    actions: NDArray[Any] | None
    """What may be executed: the chunk itself when it is clean or only observed, else a copy
    within the limits; None: nothing of it."""
    violations: Mapping[Violation, int]
    """Numbers of the chunk outside each limit; empty for a clean chunk."""

    @property
    def is_clean(self) -> bool:
        """Nothing was outside the limits."""
        return not self.violations


class Guard:
    """Bounds the actions of one robot.

    Args:
        limits: What an action may be.
        control_period: Time between two commands.
        mode: Whether actions outside the limits are brought within or only counted.

    Raises:
        ConfigError: ``control_period`` is not positive, or ``mode`` unknown.
    """

    def __init__(
        self, limits: GuardLimits, *, control_period: Nanos, mode: GuardMode = "enforce"
    ) -> None:
        if control_period <= 0:
            raise ConfigError(f"control_period must be positive, got {control_period} ns")
        if mode not in get_args(GuardMode):
            raise ConfigError(f"mode must be observe or enforce, got {mode!r}")
        dim = limits.action_dim
        self._action_dim = dim
        self._is_enforcing = mode == "enforce"
        self._low = _bounds(limits.low, dim, -1)
        self._high = _bounds(limits.high, dim, 1)
        velocity = widened("max_velocity", limits.max_velocity, dim)
        self._steps: dict[Violation, NDArray[np.float64]] = {
            "step": widened("max_step", limits.max_step, dim),
            "velocity": velocity * to_seconds(control_period),
        }
        self._counts: Counter[Violation] = Counter()
        self._checked = 0

    @property
    def checked(self) -> int:
        """Chunks and single actions looked at."""
        return self._checked

    @property
    def counts(self) -> Mapping[Violation, int]:
        """Numbers outside each limit so far."""
        return dict(self._counts)

    def check(self, actions: NDArray[Any], previous: Vector | None = None) -> Verdict:
        """Look at a chunk.

        Args:
            actions: Shape ``(steps, action_dim)``; it is not modified.
            previous: The command before the first of them, shape ``(action_dim,)``: the last one
                sent, or where the robot stands; None: the first action may be anywhere in range.
                If it is not finite, nothing of the chunk passes.

        Raises:
            UsageError: A shape does not fit ``action_dim``, or the actions are no numbers.
        """
        self._refuse_misfits(actions, previous)
        self._checked += 1
        violations, rows, before = self._violations(actions, previous)
        self._counts.update(violations)
        if "non_finite" in violations:
            return Verdict(actions=None, violations=violations)
        if not violations or not self._is_enforcing:
            return Verdict(actions=actions, violations=violations)
        return Verdict(actions=self._bounded(rows, before), violations=violations)

    def check_action(self, action: Vector, previous: Vector | None = None) -> Verdict:
        """Look at one command; ``actions`` of the verdict has shape ``(action_dim,)``."""
        verdict = self.check(action[np.newaxis], previous)
        if verdict.actions is None:
            return verdict
        is_same = verdict.is_clean or not self._is_enforcing
        passed = action if is_same else verdict.actions[0]
        return Verdict(actions=passed, violations=verdict.violations)

    def _refuse_misfits(self, actions: NDArray[Any], previous: Vector | None) -> None:
        fits = actions.ndim == _CHUNK_RANK and actions.shape[1] == self._action_dim
        if not fits or actions.dtype.kind not in "fiu":
            raise UsageError(
                f"actions: expected numbers of shape (steps, {self._action_dim}),"
                f" got {actions.dtype} of shape {actions.shape}"
            )
        if previous is not None and previous.shape != (self._action_dim,):
            raise UsageError(
                f"previous: expected shape ({self._action_dim},), got {previous.shape}"
            )

    def _violations(
        self, actions: NDArray[Any], previous: Vector | None
    ) -> tuple[dict[Violation, int], NDArray[Any], NDArray[Any]]:
        """What is wrong with a chunk; the chunk in floats; its rows' predecessors."""
        dtype = actions.dtype if actions.dtype.kind == "f" else np.dtype(np.float64)
        rows = actions.astype(dtype, copy=False)
        # Without a predecessor the first row is compared with NaN, which no limit minds.
        first = np.full(self._action_dim, np.nan) if previous is None else previous
        with np.errstate(over="ignore"):  # a predecessor too large for the dtype is not finite
            before = np.concatenate([first.astype(dtype)[np.newaxis], rows[:-1]])
        unknown = self._action_dim if previous is None else 0
        wrong = int((~np.isfinite(rows)).sum() + (~np.isfinite(before[:1])).sum()) - unknown
        if wrong:
            return {"non_finite": wrong}, rows, before
        low, high = self._range(before)
        outside: dict[Violation, NDArray[np.bool_]] = {"range": (rows < low) | (rows > high)}
        for name, step in self._steps.items():
            low, high = _around(before, step)
            outside[name] = (rows < low) | (rows > high)
        violations: dict[Violation, int] = {
            name: int(where.sum()) for name, where in outside.items() if where.any()
        }
        return violations, rows, before

    def _bounded(self, rows: NDArray[Any], before: NDArray[Any]) -> NDArray[Any]:
        """The chunk within the limits, each row bounded by the bounded row before it."""
        bounded = rows.copy()
        last = before[0]
        for row in bounded:
            low, high = self._range(last)
            for step in self._steps.values():
                least, most = _around(last, step)
                low, high = np.fmax(low, least), np.fmin(high, most)
            np.clip(row, low, high, out=row)
            last = row
        bounded.flags.writeable = False
        return bounded

    def _range(self, before: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Bounds of the rows after ``before``; wide enough for a robot outside to stay there."""
        low = -_rounded_down(-self._low, before.dtype)
        high = _rounded_down(self._high, before.dtype)
        return np.fmin(low, before), np.fmax(high, before)


def _around(before: NDArray[Any], step: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Least and greatest values one step away, in the precision of ``before``."""
    # Both checks of a value, now and after it was bounded, must round alike, or a bounded chunk
    # is out of bounds; hence values are compared, never differences.
    with np.errstate(over="ignore"):
        width = step.astype(before.dtype)
        return before - width, before + width


def _rounded_down(bound: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Largest numbers of ``dtype`` that do not exceed the bound."""
    with np.errstate(over="ignore"):
        rounded = bound.astype(dtype)
    return np.where(rounded > bound, np.nextafter(rounded, dtype.type(-np.inf)), rounded)


def _bounds(
    bounds: tuple[float | None, ...] | None, action_dim: int, sign: int
) -> NDArray[np.float64]:
    """Bounds of each component, ``sign`` times infinity where there is none."""
    if bounds is None:
        return np.full(action_dim, sign * np.inf)
    if len(bounds) != action_dim:
        raise ConfigError(f"{len(bounds)} bounds do not fit actions of {action_dim} components")
    return np.array([sign * np.inf if bound is None else bound for bound in bounds], np.float64)
