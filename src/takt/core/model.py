"""What the scheduler must know of a loaded model: its promise and its captured shapes.

A stage runs only batch sizes and layouts that were captured when the model was loaded (as CUDA
graphs on a GPU, as compiled graphs on a CPU).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from takt.core.request import Stage
from takt.errors import ConfigError
from takt.units import Nanos

__all__ = ["Model"]

_PREFIX = Stage.PREFIX  # by a name of its own, see takt.core.scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model as it may be scheduled."""

    name: str
    """Name robots ask for."""
    architecture: str
    """Key of its entries in the profile; fine-tuned variants share it."""
    slo: Nanos
    """Promised time from the robot sending an observation to the answer being at the robot."""
    prefix_sizes: tuple[int, ...] = (1,)
    """Captured batch sizes of the prefix stage, rising."""
    denoise_sizes: tuple[int, ...] = (1,)
    """Captured batch sizes of the denoise stage, rising. Empty for a single-pass policy."""
    steps: int = 1
    """Denoise steps of a chunk; they matter where a launch is a single step."""
    holds: tuple[int, ...] = (1,)
    """For each layout, the layouts whose launches can hold its row, as a bit mask. Layouts are
    numbered from the cheapest to the dearest; the last one holds every row."""

    def __post_init__(self) -> None:
        if self.slo <= 0:
            raise ConfigError(f"model {self.name!r}: slo must be positive, got {self.slo} ns")
        if self.steps < 1:
            raise ConfigError(f"model {self.name!r}: steps must be at least 1, got {self.steps}")
        _check_sizes(self.name, "prefix_sizes", self.prefix_sizes)
        if self.denoise_sizes:
            _check_sizes(self.name, "denoise_sizes", self.denoise_sizes)
        _check_layouts(self.name, self.holds)

    @property
    def single_pass(self) -> bool:
        """Whether the model answers right after its prefix."""
        return not self.denoise_sizes

    def sizes(self, stage: Stage) -> tuple[int, ...]:
        """Captured batch sizes of ``stage``, rising."""
        return self.prefix_sizes if stage is _PREFIX else self.denoise_sizes

    def filled_size(self, stage: Stage, rows: int) -> int:
        """Largest captured size that ``rows`` rows fill; the smallest of all when none is full."""
        sizes = self.sizes(stage)
        # Searched from place 1 on, so that the smallest is what comes before all others.
        return sizes[bisect_right(sizes, rows, lo=1) - 1]

    def holding_size(self, stage: Stage, rows: int) -> int:
        """Smallest captured size that holds ``rows`` rows; the largest when none does."""
        sizes = self.sizes(stage)
        return sizes[min(bisect_left(sizes, rows), len(sizes) - 1)]

    def holding_layout(self, layouts: Iterable[int]) -> int:
        """Cheapest layout whose launch can hold a row of each of ``layouts``."""
        mask = -1
        for layout in layouts:
            mask &= self.holds[layout]
        return (mask & -mask).bit_length() - 1


def _check_sizes(name: str, field: str, sizes: tuple[int, ...]) -> None:
    if not sizes or sizes[0] < 1 or any(a >= b for a, b in pairwise(sizes)):
        raise ConfigError(
            f"model {name!r}: {field} must be rising batch sizes from 1, got {list(sizes)}",
        )


def _check_layouts(name: str, holds: tuple[int, ...]) -> None:
    if not holds:
        raise ConfigError(f"model {name!r}: holds must name at least one layout")
    last = 1 << (len(holds) - 1)
    for layout, mask in enumerate(holds):
        if not mask & (1 << layout) or not mask & last or mask >= 2 * last:
            raise ConfigError(
                f"model {name!r}: layout {layout} must be held by itself and by the last layout"
                f" {len(holds) - 1}, got bit mask {mask:#b}",
            )
