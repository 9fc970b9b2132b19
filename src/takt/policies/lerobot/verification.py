"""Recomputes golden cases with the network that serves, and says how far off each tensor is.

Each case is served in the smallest layout that holds it, with every intermediate tensor kept and
compared (:mod:`takt.policies.lerobot.comparison`), and once more in others, where the chunk must be
the same.

Start reading at :func:`verify`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from takt.errors import ConfigError
from takt.policies.guidance import Leftover, guided_chunking
from takt.policies.interface import Placement
from takt.policies.lerobot.checkpoint import FlowCheckpoint
from takt.policies.lerobot.comparison import GoldenView, ServedCase, tensor_error
from takt.policies.lerobot.golden import GoldenCase, GoldenSet, read_golden
from takt.policies.lerobot.opening import CheckpointOptions, make_network, open_checkpoint
from takt.policies.lerobot.rows import FlowDecoder, FlowPreprocessor
from takt.schema.observation import Observation
from takt.schema.row import Row, RowRequest

__all__ = ["CHUNK_TENSORS", "Finding", "verify"]

CHUNK_TENSORS = ("x_final", "action_model")
"""The model-space chunk, for which the tighter tolerance holds."""

_INPUTS = ("noise", "input.state", "prev_chunk_left_over")
_ROUNDINGS = 4
"""Units in the last place that adding an offset in robot units may cost."""

_Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One tensor of one case."""

    case: str
    tensor: str
    max_abs_error: float
    """For masks and ids, how many entries differ."""
    limit: float
    verdict: str
    """``ok``, ``off`` or ``not compared``."""


def verify(directory: Path, *, tolerance: float, chunk_tolerance: float) -> list[Finding]:
    """Recompute every case of a directory; see :mod:`takt.policies.lerobot.golden`.

    Args:
        directory: The directory. Every ``checkpoint*`` in it must give the golden values.
        tolerance: Largest absolute error of an intermediate tensor.
        chunk_tolerance: Largest absolute error of the model-space chunk.

    Raises:
        UnknownFamilyError: We do not serve the family.
        ConfigError: A file is missing or damaged, or the checkpoint cannot be loaded.
    """
    # What is no folder, by whatever name, holds nothing; pathlib would raise for some.
    entries = directory.glob("checkpoint*") if os.path.isdir(directory) else ()
    checkpoints = sorted(path for path in entries if path.is_dir())
    if not checkpoints:
        raise ConfigError(f"{directory}: no checkpoint directory in it")
    tokenizer = directory / "tokenizer"
    findings: list[Finding] = []
    for path in checkpoints:
        options = CheckpointOptions(tokenizer=str(tokenizer) if tokenizer.is_dir() else None)
        open_checkpoint(path, options)  # says that a family is unknown before anything else
        golden = read_golden(directory)
        most = max(len(case.observations) for case in golden.cases)
        sizes = tuple(1 << power for power in range(math.ceil(math.log2(most)) + 1))
        options = CheckpointOptions(
            tokenizer=options.tokenizer, prefix_sizes=sizes, denoise_sizes=sizes
        )
        checking = _Verification(open_checkpoint(path, options), golden, tolerance, chunk_tolerance)
        label = "" if path.name == "checkpoint" else f"{path.name}/"
        for case in golden.cases:
            findings += checking.check(case, label + case.name)
    return findings


class _Verification:
    """One checkpoint, loaded, and what is asked of it."""

    def __init__(
        self,
        checkpoint: FlowCheckpoint,
        golden: GoldenSet,
        tolerance: float,
        chunk_tolerance: float,
    ) -> None:
        from takt.policies.networks.serving import FlowRunner

        self.checkpoint = checkpoint
        self._golden = golden
        self._tolerance = tolerance
        self._chunk_tolerance = chunk_tolerance
        spec = checkpoint.spec("verified")
        self._preprocessor = FlowPreprocessor(spec, checkpoint)
        self._decoder = FlowDecoder(checkpoint)
        placement = Placement(kv_slots=2 * spec.prefix_sizes[-1], precision="f32")
        self._runner = FlowRunner(spec, checkpoint, lambda: make_network(checkpoint), placement)
        self._runner.load()

    def check(self, case: GoldenCase, label: str) -> Iterator[Finding]:
        """Serve a case in the layouts that can hold it and compare."""
        rows = [self._row(case, index) for index in range(len(case.observations))]
        layouts = self.checkpoint.layouts
        need = [layouts[row.header.layout] for row in rows]
        fitting = [
            place
            for place, layout in enumerate(layouts)
            if all(layout.holds(needed) for needed in need)
        ]
        least, most = fitting[0], fitting[-1]
        served = self._serve(case, rows, least, least)
        yield from self._compare(case, label, served)
        for prefix, denoise in {(most, most), (most, least), (least, most)} - {(least, least)}:
            again = self._serve(case, rows, prefix, denoise)
            if "x_final" in case.tensors:
                where = f"x_final ({layouts[prefix].name} | {layouts[denoise].name})"
                error = tensor_error(again.chunk, case.tensors["x_final"])
                yield self._finding(label, where, error, self._chunk_tolerance)

    # Serving

    def _row(self, case: GoldenCase, index: int) -> Row:
        frames, name = self._golden.frames, case.observations[index]
        robot_names = self.checkpoint.pipeline.robot_names
        try:
            observation = Observation(
                state=frames[f"{name}.state"],
                images={robot_names.get(c, c): frames[f"{name}.{c}"] for c in case.cameras},
                prompt=case.tasks[index],
            )
        except KeyError as error:
            raise ConfigError(f"raw_observations.npz: no array {error}") from error
        spec = self._preprocessor.spec
        slot: dict[str, _Array] = {
            tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in spec.slot_tensors
        }
        header = self._preprocessor.write(observation, slot, self._request(case, index))
        if case.noise[index].shape != slot["noise"].shape:
            raise ConfigError(f"case {case.name}: noise of shape {case.noise[index].shape}")
        slot["noise"][...] = case.noise[index]
        return Row(header, slot)

    def _request(self, case: GoldenCase, index: int) -> RowRequest:
        guided = case.guided
        if guided is None:
            return RowRequest()
        config, digest = self.checkpoint.config, self.checkpoint.digest
        made = guided_chunking(
            Leftover(guided.leftover[index], digest),
            digest=digest,
            delay=guided.delay,
            execution_horizon=guided.execution_horizon,
            horizon=config.horizon,
            model_action_dim=config.max_action_dim,
            schedule=guided.schedule,
        )
        return RowRequest(chunking=made.chunking)

    def _serve(self, case: GoldenCase, rows: list[Row], prefix: int, denoise: int) -> ServedCase:
        runner, slots = self._runner, list(range(len(rows)))[::-1]
        size = next(size for size in runner.spec.prefix_sizes if size >= len(rows))
        guided = case.guided
        config = self.checkpoint.config
        runner.max_guidance = config.max_guidance if guided is None else guided.max_guidance
        of_prefix: dict[str, _Array] = {}
        of_denoise: dict[str, _Array] = {}
        runner.trace = _keeper(of_prefix, len(rows))
        runner.prefix(rows, size=size, layout=prefix, kv_slots=slots)
        runner.trace = _keeper(of_denoise, len(rows))
        chunk = runner.denoise(rows, size=size, layout=denoise, kv_slots=slots)
        return ServedCase(rows, self.checkpoint.layouts[prefix], of_prefix, of_denoise, chunk)

    # Comparing

    def _compare(self, case: GoldenCase, label: str, served: ServedCase) -> Iterator[Finding]:
        view = GoldenView(self.checkpoint, case, served, self._runner.image_tokens)
        if not any(name in case.tensors for name in CHUNK_TENSORS):
            raise ConfigError(f"case {case.name}: no tensor {' or '.join(CHUNK_TENSORS)}")
        for name, golden in case.tensors.items():
            if name in _INPUTS:
                continue
            if name == "action_robot":
                yield self._robot_finding(label, golden, served)
                continue
            error = view.error(name, golden)
            if error is None:
                yield Finding(
                    case=label, tensor=name, max_abs_error=0, limit=0, verdict="not compared"
                )
            elif golden.dtype.kind in "biu":
                yield self._finding(label, name, error, 0)
            else:
                is_chunk = name in CHUNK_TENSORS
                limit = self._chunk_tolerance if is_chunk else self._tolerance
                yield self._finding(label, name, error, limit)

    def _robot_finding(self, label: str, golden: _Array, served: ServedCase) -> Finding:
        decode, pairs = self._decoder.decode, zip(served.chunk, served.rows, strict=True)
        actions = np.stack([decode(chunk, row) for chunk, row in pairs])
        unit = np.abs(self.checkpoint.pipeline.action.unit)
        if actions.shape != golden.shape:
            return self._finding(label, "action_robot", math.inf, 0)
        size = np.maximum(np.abs(golden), 1).max(axis=tuple(range(golden.ndim - 1)))
        allowed = self._tolerance * unit + _ROUNDINGS * np.spacing(size.astype(np.float32))
        off = np.abs(actions - golden)
        is_ok = bool((off <= allowed).all())
        return Finding(
            case=label,
            tensor="action_robot",
            max_abs_error=float(off.max()),
            limit=float(allowed.max()),
            verdict="ok" if is_ok else "off",
        )

    def _finding(self, case: str, tensor: str, error: float, limit: float) -> Finding:
        # Written so that NaN is not within any limit.
        verdict = "ok" if error <= limit else "off"
        return Finding(case=case, tensor=tensor, max_abs_error=error, limit=limit, verdict=verdict)


def _keeper(into: dict[str, _Array], rows: int) -> Callable[[str, Any], None]:
    def keep(name: str, tensor: Any) -> None:  # noqa: ANN401 - a torch tensor
        into[name] = tensor[:rows].detach().float().cpu().numpy()

    return keep
