# pyright: basic, reportMissingImports=false
# Torch's annotations are incomplete, and `make check` also runs where torch is not installed.
"""The stages of a flow policy as a worker calls them: rows in, cache slots between, chunks out.

A launch of a captured size and layout always runs the same shapes. Rows are copied into arrays that
exist since the load; keys and values go into the cache and come out of it by index tensors; nothing
inside a stage depends on data in a way the host must know.

Real tokens are moved to the front of their cache slot, in order. A denoise launch can therefore run
in any layout that is long enough, whatever the layout of the prefix launch was.

Start reading at :meth:`FlowRunner.prefix`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from takt.core.request import Stage
from takt.errors import ConfigError, InvariantError
from takt.policies.interface import FloatArray, Placement
from takt.policies.lerobot.checkpoint import WEIGHTS_FILE, FlowCheckpoint
from takt.policies.lerobot.launch_arrays import LaunchArrays
from takt.policies.networks.flow import FlowInputs, Trace, silent
from takt.policies.networks.loading import load_network
from takt.policies.networks.stage import PrefixInputs, PrefixResult, compacted, denoise
from takt.schema.row import Row
from takt.schema.spec import PolicySpec
from takt.units import Nanos

__all__ = ["FlowRunner"]

log = logging.getLogger(__name__)


class FlowRunner:
    """Runs both stages of one checkpoint with torch.

    Args:
        spec: The checkpoint's card.
        checkpoint: The checkpoint.
        make: Makes the family's network.
        placement: Cores, number format and cache slots.
        device: Where it runs, as torch spells it.
    """

    def __init__(
        self,
        spec: PolicySpec,
        checkpoint: FlowCheckpoint,
        make: Callable[[], nn.Module],
        placement: Placement,
        *,
        device: str = "cpu",
    ) -> None:
        self.spec = spec
        self.precision = "bf16" if placement.precision == "bf16" else "f32"
        """Number format in use."""
        self.trace: Trace = silent
        """Told of intermediate tensors; for verification only."""
        self.max_guidance = checkpoint.config.max_guidance
        """Largest guidance weight of real-time chunking."""
        self._checkpoint = checkpoint
        self._make = make
        self._placement = placement
        self._device = device
        self._loaded: _Loaded | None = None

    @property
    def network(self) -> Any:  # noqa: ANN401 - a module with the methods of FlowNetwork
        """The family's network; loaded."""
        return self._parts().network

    def load(self) -> None:
        """Fill the network and take all memory; see :meth:`Network.load`."""
        network = load_network(
            self._make,
            self._checkpoint.files.path(WEIGHTS_FILE),
            self._checkpoint.family.names,
            precision=self.precision,
            device=self._device,
        )
        # One slot more than asked for: places of a launch that hold no row write there.
        slots = self._placement.kv_slots + 1
        narrow = torch.bfloat16 if self.precision == "bf16" else torch.float32
        try:
            kv = torch.zeros((slots, *self.spec.kv[0].shape), dtype=narrow, device=self._device)
        except RuntimeError as error:
            raise ConfigError(f"no memory for {slots} slots of keys and values: {error}") from error
        counts = torch.zeros(slots, dtype=torch.int64, device=self._device)
        arrays = LaunchArrays(self.spec, self._checkpoint.layouts)
        self._loaded = _Loaded(network=network, kv=kv, counts=counts, arrays=arrays)
        log.info("loaded: model=%s precision=%s", self.spec.name, self.precision)

    def warm(self) -> None:
        """Run every captured shape once."""
        for layout in range(len(self.spec.layouts)):
            for size in self.spec.prefix_sizes:
                self._run_prefix(size, layout, self._slots((), size))
            for size in self.spec.denoise_sizes:
                self._run_denoise(size, layout, self._slots((), size))

    def enter_lane(self, stage: Stage) -> None:
        """Keep the calling thread, and the team it computes with, to the lane's cores."""
        cores = self._placement.cores(stage)
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        torch.set_num_threads(max(1, len(cores) or torch.get_num_threads()))

    def prefix(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> None:
        """See :meth:`takt.policies.interface.Network.prefix`."""
        self._parts().arrays.write_prefix(rows, size, layout)
        self._run_prefix(size, layout, self._slots(kv_slots, size))

    def denoise(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> FloatArray:
        """See :meth:`takt.policies.interface.Network.denoise`."""
        self._parts().arrays.write_denoise(rows, size)
        chunks = self._run_denoise(size, layout, self._slots(kv_slots, size))
        return chunks[: len(rows)].float().cpu().numpy().copy()

    @torch.inference_mode()
    def image_tokens(self, image: FloatArray) -> FloatArray:
        """Tokens of one image ``(height, width, 3)`` before any factor; for verification."""
        images = self._tensor(image[None, None])
        return self._parts().network.image_tokens(images)[0, 0].float().cpu().numpy()

    def launch_time(self, stage: Stage, rows: int) -> Nanos:
        """Nothing is waited for."""
        del stage, rows
        return 0

    def close(self) -> None:
        """Give back network and cache."""
        self._loaded = None

    # Stages on the arrays of a launch

    @torch.inference_mode()
    def _run_prefix(self, size: int, layout: int, slots: Tensor) -> None:
        parts = self._parts()
        views = parts.arrays.prefix(size, layout)
        inputs = {name: self._tensor(array) for name, array in views.items()}
        inputs.setdefault("state", torch.zeros(0, device=self._device))
        result = compacted(parts.network.prefix(PrefixInputs(**inputs), self.trace))
        length = result.real.shape[1]
        parts.counts.index_copy_(0, slots, result.real.sum(1))
        parts.kv.narrow(4, 0, length).index_copy_(0, slots, result.kv.to(parts.kv.dtype))
        # What an earlier row left further back is masked, but must not be NaN.
        rest = parts.kv.shape[4] - length
        if rest:
            parts.kv.narrow(4, length, rest).index_fill_(0, slots, 0)

    @torch.inference_mode()
    def _run_denoise(self, size: int, layout: int, slots: Tensor) -> Tensor:
        parts = self._parts()
        length = self._checkpoint.sizes.prefix_length(self._checkpoint.layouts[layout])
        views = parts.arrays.denoise(size)
        inputs = {name: self._tensor(array) for name, array in views.items()}
        counts = parts.counts.index_select(0, slots)
        real = torch.arange(length, device=self._device)[None, :] < counts[:, None]
        kv = parts.kv.narrow(4, 0, length).index_select(0, slots)
        flow = FlowInputs(
            noise=inputs["noise"],
            previous=inputs["previous_chunk"],
            weights=inputs["prefix_weights"],
        )
        state = inputs.get("state", inputs["noise"])
        prefix = PrefixResult(kv=kv, real=real)
        return denoise(
            parts.network,
            prefix,
            state,
            flow,
            max_guidance=self.max_guidance,
            trace=self.trace,
        )

    # Arrays

    def _parts(self) -> _Loaded:
        if self._loaded is None:
            raise InvariantError(f"{self.spec.name!r} is used but not loaded")
        return self._loaded

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _slots(self, kv_slots: Sequence[int], size: int) -> Tensor:
        spare = [self._placement.kv_slots] * (size - len(kv_slots))
        return torch.tensor([*kv_slots, *spare], dtype=torch.int64).to(self._device)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """What a loaded network consists of."""

    network: Any
    """The family's network."""
    kv: Tensor
    """Keys and values of each slot."""
    counts: Tensor
    """Real tokens of each slot."""
    arrays: LaunchArrays
    """Rows of the next launch of each stage."""
