"""One request on its way through a batch: the tensors of its slot and what fits in a header.

A slot has the same tensors with the same shapes for every request of a policy. What differs from
row to row (the layout, and the actual sizes of a policy that declares maximum shapes) travels in
the :class:`RowHeader`, beside the slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from takt.errors import ObservationError, UsageError, WireError

__all__ = ["Chunking", "Executing", "Row", "RowHeader", "RowRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowHeader:
    """The small facts of one row."""

    layout: int = 0
    """Which of the policy's layouts the row has."""
    state_dim: int
    """Values of the state that are there."""
    horizon: int
    """Steps this request asks for."""
    action_dim: int
    """Values of one action of the answer."""

    def to_plain(self) -> dict[str, int]:
        """The header as a small dictionary of numbers, for a message."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_plain(cls, values: Mapping[str, object]) -> RowHeader:
        """The header that :meth:`to_plain` described.

        Raises:
            WireError: A key is missing or unknown, or a value is no whole number from 0.
        """
        names = cls.__slots__
        checked: dict[str, int] = {}
        for name, value in values.items():
            if name not in names or type(value) is not int or value < 0:
                raise WireError(f"row.{name}: expected one of {sorted(names)} >= 0, got {value!r}")
            checked[name] = value
        for name in sorted(names):
            if name not in checked:
                raise WireError(f"row.{name}: this key is missing")
        return cls(**checked)


class Row(NamedTuple):
    """One request as a network sees it."""

    header: RowHeader
    tensors: Mapping[str, NDArray[Any]]
    """Read-only views of the slot by input name, in the shapes the policy declares."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunking:
    """The rest of the chunk a robot is executing, for real-time chunking."""

    previous_chunk: NDArray[np.float32]
    """Actions in model space, shape ``(horizon, model_action_dim)``; row 0 is the step the new
    chunk starts at, rows past the end of the old chunk are zero."""
    prefix_weights: NDArray[np.float32]
    """How strongly each step is drawn to the previous chunk, 0..1, shape ``(horizon,)``."""
    frozen_steps: int = 0
    """Steps that will be executed before the answer arrives and must stay as they are."""

    def check(self, horizon: int, model_action_dim: int) -> None:
        """Refuse what does not fit a policy.

        Raises:
            ObservationError: A shape, a weight or the number of frozen steps is impossible.
        """
        _check_shape("previous_chunk", self.previous_chunk, (horizon, model_action_dim))
        _check_shape("prefix_weights", self.prefix_weights, (horizon,))
        low, high = float(self.prefix_weights.min()), float(self.prefix_weights.max())
        if low < 0 or high > 1:
            raise ObservationError(
                "prefix_weights", expected="weights in 0..1", received=f"{low:g}..{high:g}"
            )
        if not 0 <= self.frozen_steps < horizon:
            raise ObservationError(
                "frozen_steps", expected=f"0..{horizon - 1} steps", received=str(self.frozen_steps)
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Executing:
    """What is left of the chunk a robot is executing, as the robot has it.

    The policy turns it into a :class:`Chunking`, in the words of its own model space.
    """

    actions: NDArray[np.float32]
    """Robot units, ``(steps, action_dim)``; row 0 is the step the new chunk starts at."""
    digest: str
    """Digest of the model that made it."""
    delay: int
    """Steps that will be executed before the answer arrives."""
    execution_horizon: int | None = None
    """Steps after which the new chunk is free; None: what the policy declares."""
    schedule: str = "LINEAR"
    """How the pull falls between the two: ``LINEAR``, ``EXP``, ``ZEROS`` or ``ONES``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowRequest:
    """What one request asks for beyond its observation."""

    session: str = ""
    """Session the observation belongs to; part of the key of its noise."""
    sequence: int = 0
    """Number of the observation within its session; part of the key of its noise."""
    seed: int = 0
    """The server's seed; part of the key of the noise."""
    horizon: int | None = None
    """Steps the client wants; None: what the policy declares."""
    chunking: Chunking | None = None
    """The chunk being executed; None: the new one starts free."""
    executing: Executing | None = None
    """The same in the robot's words, for a policy that can translate it."""

    def __post_init__(self) -> None:
        if self.horizon is not None and self.horizon < 1:
            raise UsageError(f"horizon must be at least 1, got {self.horizon}")


def _check_shape(key: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype.kind != "f":
        raise ObservationError(
            key, expected=f"float of shape {shape}", received=f"{array.dtype} of {array.shape}"
        )
    if not np.isfinite(array).all():
        raise ObservationError(key, expected="finite values", received="NaN or infinity")
