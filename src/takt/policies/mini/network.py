"""Runs the `mini` network with OpenVINO: one program per stage and captured batch size.

All memory is taken in :meth:`MiniNetwork.load`: every program owns its input and output arrays, and
the key/value cache is one array read and written by slot. A launch copies rows in, runs, and copies
the result out. Each lane thread keeps to its cores; see :meth:`MiniNetwork.enter_lane`.

Start reading at :meth:`MiniNetwork.prefix`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from takt.core.request import Stage
from takt.errors import ConfigError, InvariantError
from takt.policies.interface import FloatArray, Placement
from takt.policies.mini.checkpoint import MiniCard, MiniOptions, read_weights
from takt.policies.mini.gate import check_programs
from takt.policies.mini.graphs import Weights, denoise_graph, prefix_graph
from takt.schema.row import Row
from takt.schema.spec import PolicySpec
from takt.units import Nanos, ms

__all__ = ["TRIAL_RUNS", "WORTH", "MiniNetwork"]

log = logging.getLogger(__name__)

TRIAL_RUNS = 15
"""Runs of the smallest prefix in each number format when the format is to be chosen."""
WORTH = 0.9
"""bf16 is less exact, so it must take at most this share of float32's time to be chosen."""


class MiniNetwork:
    """Both stages of one checkpoint on CPU cores.

    Args:
        spec: From :func:`~takt.policies.mini.checkpoint.mini_spec`.
        card: The same checkpoint's card.
        directory: Where the checkpoint lies.
        placement: Cores, number format and cache slots.
        options: How it behaves.
    """

    def __init__(
        self,
        spec: PolicySpec,
        card: MiniCard,
        directory: Path,
        placement: Placement,
        options: MiniOptions | None = None,
    ) -> None:
        self.spec = spec
        self.precision = "f32"
        """Number format in use, ``f32`` or ``bf16``; final after :meth:`load`."""
        self._card = card
        self._directory = directory
        self._placement = placement
        self._least = ms((options or MiniOptions()).at_least_ms / 2)
        self._programs: dict[tuple[Stage, int], _Program] = {}
        self._kv: FloatArray = np.zeros((0, *card.sizes.kv_shape), np.float32)
        self._steps = np.arange(card.sizes.horizon)

    def load(self) -> None:
        """Read the weights, choose the number format, compile every captured size and check it."""
        _check_cores(self._placement)
        weights = read_weights(self._directory, self._card.sizes)
        core = ov.Core()
        precision = self._choose_precision(core, weights)
        wanted = [(Stage.PREFIX, size) for size in self.spec.prefix_sizes]
        wanted += [(Stage.DENOISE, size) for size in self.spec.denoise_sizes]
        # Compiling uses one core and releases the interpreter, so two at once take half as long.
        with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
            compiling = [
                pool.submit(self._compile, core, weights, precision, *key) for key in wanted
            ]
            programs = dict(zip(wanted, [each.result() for each in compiling], strict=True))
        check_programs(
            programs,
            self._card.sizes,
            weights,
            num_steps=self._card.num_steps,
            precision=precision,
        )
        self._kv = np.zeros((self._placement.kv_slots, *self._card.sizes.kv_shape), np.float32)
        self._programs = programs
        self.precision = precision
        log.info("mini loaded: model=%s precision=%s", self.spec.name, precision)

    def warm(self) -> None:
        """Run every program twice: the first run fills OpenVINO's own caches."""
        for program in self._programs.values():
            program.run()
            program.run()

    def enter_lane(self, stage: Stage) -> None:
        """Keep the calling thread to the lane's cores and run the lane's programs once in it.

        OpenVINO runs a launch in the thread that asks for it. While it does, it may widen the
        thread's core set to the whole process; the thread starts every launch on its own cores, so
        lanes meet only where the operating system moves one.
        """
        cores = self._placement.cores(stage)
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        for (program_stage, _), program in self._programs.items():
            if program_stage is stage:
                program.run()

    def prefix(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> None:
        """See :meth:`takt.policies.interface.Network.prefix`."""
        del layout
        program = self._program(Stage.PREFIX, size, rows)
        for place, row in enumerate(rows):
            program.inputs["image"][place] = row.tensors["image"]
            program.inputs["words"][place] = row.tensors["words"]
        program.run()
        for place, kv_slot in enumerate(kv_slots):
            self._kv[kv_slot] = program.output[place]

    def denoise(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> FloatArray:
        """See :meth:`takt.policies.interface.Network.denoise`."""
        del layout
        program = self._program(Stage.DENOISE, size, rows)
        inputs = program.inputs
        for place, (row, kv_slot) in enumerate(zip(rows, kv_slots, strict=True)):
            inputs["kv"][place] = self._kv[kv_slot]
            for name in ("state", "noise", "previous_chunk"):
                inputs[name][place] = row.tensors[name]
            frozen = self._steps < row.tensors["frozen_steps"]
            inputs["hold"][place, :, 0] = np.maximum(frozen, row.tensors["prefix_weights"])
        program.run()
        return program.output[: len(rows)].copy()

    def launch_time(self, stage: Stage, rows: int) -> Nanos:
        """Nothing is waited for unless the options say so."""
        del stage, rows
        return self._least

    def close(self) -> None:
        """Give back programs and cache."""
        self._programs = {}
        self._kv = np.zeros((0, *self._card.sizes.kv_shape), np.float32)

    def _program(self, stage: Stage, size: int, rows: Sequence[Row]) -> _Program:
        program = self._programs.get((stage, size))
        if program is None or not 1 <= len(rows) <= size:
            raise InvariantError(f"{stage.name} launch of {len(rows)} rows at size {size}")
        return program

    def _compile(
        self, core: ov.Core, weights: Weights, precision: str, stage: Stage, size: int
    ) -> _Program:
        sizes = self._card.sizes
        if stage is Stage.PREFIX:
            graph = prefix_graph(sizes, weights, size)
        else:
            graph = denoise_graph(sizes, weights, size, self._card.num_steps)
        threads = max(1, len(self._placement.cores(stage)))
        return _Program(core.compile_model(graph, "CPU", _settings(precision, threads)))

    def _choose_precision(self, core: ov.Core, weights: Weights) -> str:
        wanted = self._placement.precision
        has_bf16 = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        if wanted == "bf16" and not has_bf16:
            raise ConfigError("precision bf16: this CPU has no bf16; use f32 or auto")
        if wanted != "auto" or not has_bf16:
            return "f32" if wanted == "auto" else wanted
        # Having bf16 does not mean being fast at it: some CPUs run it at half the speed of f32.
        took = {
            name: _best_time(self._compile(core, weights, name, Stage.PREFIX, 1).run)
            for name in ("f32", "bf16")
        }
        return "bf16" if took["bf16"] < WORTH * took["f32"] else "f32"


class _Program:
    """A compiled graph with arrays of its own for inputs and output."""

    def __init__(self, compiled: ov.CompiledModel) -> None:
        self._request = compiled.create_infer_request()
        self.inputs: dict[str, NDArray[Any]] = {}
        for index, port in enumerate(compiled.inputs):
            array = np.zeros(tuple(port.shape), port.element_type.to_dtype())
            self.inputs[port.any_name] = array
            self._request.set_input_tensor(index, ov.Tensor(array, shared_memory=True))
        self.output: FloatArray = np.zeros(tuple(compiled.outputs[0].shape), np.float32)
        self._request.set_output_tensor(0, ov.Tensor(self.output, shared_memory=True))

    def run(self) -> None:
        """Compute ``output`` from ``inputs`` in the calling thread."""
        self._request.infer()


def _settings(precision: str, threads: int) -> dict[str, Any]:
    return {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        # OpenVINO's own pinning puts the first stream of every program on the same core.
        "ENABLE_CPU_PINNING": False,
    }


def _best_time(run: Callable[[], None]) -> Nanos:
    times: list[Nanos] = []
    for _ in range(TRIAL_RUNS):
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    return min(times)


def _check_cores(placement: Placement) -> None:
    if not hasattr(os, "sched_getaffinity"):
        return
    usable = os.sched_getaffinity(0)
    wanted = {*placement.prefix_cores, *placement.denoise_cores}
    if not wanted <= usable:
        raise ConfigError(
            f"cores {sorted(wanted - usable)} are not usable here; usable: {sorted(usable)}"
        )
