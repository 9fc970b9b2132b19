"""Runs a flow policy with OpenVINO: one program per stage, for every captured layout and size.

A program holds the weights once, whatever the shape of a launch; OpenVINO keeps what it has
prepared for each shape it has seen, and the gate shows it all captured ones at load. The denoise
program loops over its steps itself: one call per launch, so a lane waits for the interpreter once.

Needs neither torch nor the checkpoint's weights when the export is in the cache.

Start reading at :meth:`CompiledNetwork.load`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from takt.core.request import Stage
from takt.errors import ConfigError, InvariantError
from takt.policies.compiled.cache import Entry
from takt.policies.compiled.gate import check_parity
from takt.policies.interface import FloatArray, Placement
from takt.policies.lerobot.checkpoint import FlowCheckpoint
from takt.policies.lerobot.launch_arrays import LaunchArrays
from takt.schema.row import Row
from takt.schema.spec import PolicySpec
from takt.units import Nanos

__all__ = ["CompiledNetwork", "has_bf16"]

log = logging.getLogger(__name__)


class CompiledNetwork:
    """Both stages of one exported checkpoint on CPU cores.

    Args:
        spec: The checkpoint's card.
        checkpoint: The checkpoint.
        placement: Cores, number format and cache slots.
        export: Finds the export, or makes it.
    """

    def __init__(
        self,
        spec: PolicySpec,
        checkpoint: FlowCheckpoint,
        placement: Placement,
        export: Callable[[], Entry],
    ) -> None:
        self.spec = spec
        self.precision = "bf16" if placement.precision == "bf16" else "f32"
        """Number format in use."""
        self.difference = 0.0
        """Largest difference from the reference that the gate saw, in units of model space."""
        self._checkpoint = checkpoint
        self._placement = placement
        self._export = export
        self._loaded: _Loaded | None = None

    def load(self) -> None:
        """Read or make the export, compile it, take all memory, and check every captured shape.

        Raises:
            ConfigError: The export cannot be made or read, or this CPU lacks the number format.
            ParityError: It computes something else than the reference.
        """
        if self.precision == "bf16" and not has_bf16():
            raise ConfigError("precision bf16: this CPU has no bf16; use f32")
        entry = self._export()
        expected = entry.expected()
        slots = self._placement.kv_slots
        most = max(*self.spec.prefix_sizes, *self.spec.denoise_sizes)
        if slots < most:
            raise ConfigError(f"{self.spec.name}: {slots} cache slots, the largest batch is {most}")
        core = ov.Core()
        try:
            kv = np.zeros((slots, *self.spec.kv[0].shape), np.float32)
        except MemoryError as error:
            raise ConfigError(f"no memory for {slots} slots of keys and values") from error
        self._loaded = _Loaded(
            programs={stage: self._program(core, entry, stage) for stage in Stage},
            kv=kv,
            counts=np.zeros(slots, np.int64),
            arrays=LaunchArrays(self.spec, self._checkpoint.layouts),
        )
        try:
            self.difference = check_parity(
                self, self._checkpoint, expected, precision=self.precision
            )
        except BaseException:
            self.close()
            raise
        log.info(
            "loaded: model=%s engine=openvino precision=%s difference=%.2g",
            self.spec.name,
            self.precision,
            self.difference,
        )

    def warm(self) -> None:
        """Nothing is left to do: the gate has run every captured shape."""

    def enter_lane(self, stage: Stage) -> None:
        """Keep the calling thread, in which launches run, to the lane's cores."""
        cores = self._placement.cores(stage)
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)

    def prefix(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> None:
        """See :meth:`takt.policies.interface.Network.prefix`."""
        parts = self._parts()
        views = parts.arrays.write_prefix(rows, size, layout)
        kv, counts = parts.programs[Stage.PREFIX].run(views)
        length = kv.shape[4]
        for place, kv_slot in enumerate(kv_slots):
            parts.kv[kv_slot, :, :, :, :length] = kv[place]
            # What an earlier row left further back is masked, but must not be NaN.
            parts.kv[kv_slot, :, :, :, length:] = 0
            parts.counts[kv_slot] = counts[place]

    def denoise(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> FloatArray:
        """See :meth:`takt.policies.interface.Network.denoise`."""
        parts = self._parts()
        views = parts.arrays.write_denoise(rows, size)
        given = dict(views)
        length = self._checkpoint.sizes.prefix_length(self._checkpoint.layouts[layout])
        # Places past the rows repeat the last one, whose numbers are sound.
        slots = [*kv_slots, *[kv_slots[-1]] * (size - len(kv_slots))]
        given["kv"] = np.ascontiguousarray(parts.kv[slots, :, :, :, :length])
        given["counts"] = parts.counts[slots]
        return parts.programs[Stage.DENOISE].run(given)[0][: len(rows)].copy()

    def launch_time(self, stage: Stage, rows: int) -> Nanos:
        """Nothing is waited for."""
        del stage, rows
        return 0

    def close(self) -> None:
        """Give back programs and cache."""
        self._loaded = None

    def _parts(self) -> _Loaded:
        if self._loaded is None:
            raise InvariantError(f"{self.spec.name!r} is used but not loaded")
        return self._loaded

    def _program(self, core: ov.Core, entry: Entry, stage: Stage) -> _Program:
        threads = max(1, len(self._placement.cores(stage)))
        settings: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": self.precision,
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            # OpenVINO's own pinning puts the first stream of every program on the same core.
            "ENABLE_CPU_PINNING": False,
        }
        path = entry.graph(stage)
        try:
            return _Program(core.compile_model(str(path), "CPU", settings))
        except RuntimeError as error:
            raise ConfigError(
                f"{path}: the engine cannot read it; export the checkpoint anew with takt export"
                f" ({str(error).splitlines()[0][:200]})"
            ) from error


def has_bf16() -> bool:
    """Whether this CPU computes in bf16."""
    return "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


class _Loaded:
    """What a loaded network consists of."""

    def __init__(
        self,
        *,
        programs: Mapping[Stage, _Program],
        kv: FloatArray,
        counts: NDArray[np.int64],
        arrays: LaunchArrays,
    ) -> None:
        self.programs = programs
        self.kv = kv
        self.counts = counts
        self.arrays = arrays


class _Program:
    """A compiled graph. Results are views that the next run overwrites."""

    def __init__(self, compiled: ov.CompiledModel) -> None:
        self._request = compiled.create_infer_request()
        # Compiling gives an input the names of conversions behind it as well.
        self._names: list[set[str]] = [set(port.names) for port in compiled.inputs]
        self._num_outputs = len(compiled.outputs)

    def run(self, given: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Compute in the calling thread."""
        for index, names in enumerate(self._names):
            array = given[next(name for name in given if name in names)]
            self._request.set_input_tensor(index, ov.Tensor(array, shared_memory=True))
        self._request.infer()
        return [self._request.get_output_tensor(i).data for i in range(self._num_outputs)]
