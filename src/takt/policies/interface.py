"""The three roles of a policy, and which process plays them.

::

    Observation --Preprocessor--> slot, header --Network--> model-space chunk --Decoder--> actions
                  (gateway)                     (worker)                      (either)

- A :class:`Preprocessor` checks an observation and writes it into a slot. It uses NumPy and OpenCV
  and never a network engine.
- A :class:`Network` runs the two stages on batches of slots.
- A :class:`Decoder` turns one row's result into actions for the robot.

The stages are called by lane threads: one thread per stage, and both may be inside the network at
the same time. What they share is the key/value cache, whose slots the scheduler gives to one row
at a time.

Shapes: ``n`` rows in a launch, ``size`` the captured batch size that holds them (``n <= size``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from takt.core.request import Stage
from takt.errors import ConfigError
from takt.schema.observation import Observation
from takt.schema.row import Row, RowHeader, RowRequest
from takt.schema.spec import PolicySpec
from takt.units import Nanos

__all__ = ["Decoder", "FloatArray", "Network", "Placement", "Precision", "Preprocessor"]

FloatArray: TypeAlias = NDArray[np.float32]

Precision: TypeAlias = Literal["auto", "f32", "bf16"]
"""Number format inside a network; ``auto`` is the faster of those the device has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where and how a network runs on the worker's device."""

    kv_slots: int
    """Slots of the key/value cache: the most rows between the start of their prefix launch and
    the end of their denoise launch. Memory for all of them is taken when the network loads."""
    prefix_cores: tuple[int, ...] = ()
    """CPU cores of the prefix lane; empty: any."""
    denoise_cores: tuple[int, ...] = ()
    """CPU cores of the denoise lane; empty: any."""
    precision: Precision = "auto"
    """Number format inside the network."""

    def __post_init__(self) -> None:
        if self.kv_slots < 1:
            raise ConfigError(f"kv_slots must be at least 1, got {self.kv_slots}")
        if self.precision not in get_args(Precision):
            known = ", ".join(get_args(Precision))
            raise ConfigError(f"precision must be one of {known}, got {self.precision!r}")
        shared = set(self.prefix_cores) & set(self.denoise_cores)
        if shared and set(self.prefix_cores) != set(self.denoise_cores):
            raise ConfigError(f"lanes must have the same cores or disjoint ones, share {shared}")

    def cores(self, stage: Stage) -> tuple[int, ...]:
        """Cores of the lane of ``stage``."""
        return self.prefix_cores if stage is Stage.PREFIX else self.denoise_cores


class Preprocessor(Protocol):
    """Checks observations and writes them into slots. Any number of threads may call it at once."""

    @property
    def spec(self) -> PolicySpec:
        """The policy it prepares rows for."""
        ...

    def write(
        self, observation: Observation, slot: Mapping[str, NDArray[Any]], request: RowRequest
    ) -> RowHeader:
        """Write one row.

        Args:
            observation: What the robot saw; its arrays are not kept.
            slot: Writable view of every tensor in ``spec.slot_tensors``, in its declared shape.
                A slot is used again: every tensor the row needs is overwritten.
            request: Noise key, wanted horizon, previous chunk.

        Returns:
            Layout and actual sizes of the row.

        Raises:
            ObservationError: The observation does not fit the policy. The slot's content is then
                undefined and must not be submitted.
        """
        ...


class Network(Protocol):
    """Runs both stages of one policy on one device."""

    @property
    def spec(self) -> PolicySpec:
        """The policy it runs."""
        ...

    def load(self) -> None:
        """Read the weights, take all memory, compile for every captured size.

        Raises:
            ConfigError: The weights do not fit, or the device cannot run them. Nothing stays
                half loaded.
        """
        ...

    def warm(self) -> None:
        """Run every captured shape of both stages once, so that no request pays a first time."""
        ...

    def enter_lane(self, stage: Stage) -> None:
        """Called once by the thread that will run ``stage``, before its first launch.

        What is set here may make launches faster and must not make them possible: a worker runs
        launches of less than a fraction of a millisecond without that thread, never two at once.
        """
        ...

    def prefix(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> FloatArray | None:
        """Run the prefix stage and leave its result in the cache.

        Args:
            rows: ``n`` rows of layouts that ``layout`` can hold.
            size: Captured batch size; places past ``n`` are computed and thrown away.
            layout: Captured layout of the launch.
            kv_slots: Cache slot of each row, all different.

        Returns:
            None; a single-pass policy returns what :meth:`denoise` does.
        """
        ...

    def denoise(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> FloatArray:
        """Run the denoise stage of rows whose prefix has ended, in whatever batches it ran.

        Args:
            rows: ``n`` rows.
            size: Captured batch size.
            layout: Captured layout of the launch.
            kv_slots: Cache slot of each row, as given to :meth:`prefix`.

        Returns:
            A new array of model-space chunks, ``(n, horizon, model_action_dim)``. A row that
            cannot be computed is NaN; the others do not suffer from it. A policy whose sizes are
            maxima returns the largest actual sizes of the launch.
        """
        ...

    def launch_time(self, stage: Stage, rows: int) -> Nanos:
        """Least time a launch of ``rows`` rows takes; the lane waits for the rest of it.

        Zero for a policy that computes; a policy without a network spends its latency this way.
        """
        ...

    def close(self) -> None:
        """Give back the memory. The network cannot be used afterwards."""
        ...


class Decoder(Protocol):
    """Turns a model-space chunk into actions. Any number of threads may call it at once."""

    def decode(self, chunk: FloatArray, row: Row) -> FloatArray:
        """Decode one row.

        Args:
            chunk: The row's share of the network's result, ``(horizon, model_action_dim)`` or the
                larger actual sizes of its launch. It is not kept.
            row: The row itself; relative actions are relative to its state.

        Returns:
            New array ``(row.header.horizon, row.header.action_dim)``, float32, all finite.

        Raises:
            RefusedError: Code ``failed``: the chunk holds NaN or infinity. It is this row's error
                alone.
        """
        ...
