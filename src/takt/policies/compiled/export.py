# pyright: basic, reportMissingImports=false
# Torch's annotations are incomplete, and `make check` also runs where torch is not installed.
"""Turns a checkpoint's torch network into OpenVINO graphs and stores them with reference chunks.

Three parts are traced: the prefix stage, what all steps of a denoise launch share, and one step;
the last two are joined by a loop, so that the expert's weights are in the graph once and not once
per step. Batch size, images, words and length of the prefix stay free in all of them.

The conversion front end is used directly: the engine's own command would report each conversion to
its makers over the network.

Start reading at :func:`export_checkpoint`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import openvino as ov
import torch
from openvino import opset13
from openvino.frontend import FrontEndManager
from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder
from torch import Tensor, nn

from takt.core.request import Stage
from takt.errors import ConfigError
from takt.policies.compiled.cache import EXPECTED, Entry, store
from takt.policies.compiled.reference import reference_chunks
from takt.policies.guidance import guidance_of, step_times
from takt.policies.interface import Placement
from takt.policies.lerobot.checkpoint import FlowCheckpoint
from takt.policies.networks.flow import FlowInputs, guided, silent
from takt.policies.networks.serving import FlowRunner
from takt.policies.networks.stage import PrefixInputs, PrefixResult, compacted

__all__ = ["export_checkpoint"]

log = logging.getLogger(__name__)

# OpenVINO's annotations are incomplete; everything these make is a Node.
_ops: Any = opset13
_new_model: Any = ov.Model
_EXAMPLE_ROWS = 2
_SHARED = "shared"
_STEP_INPUTS = ("x", "embedding", "time", "gain", "previous", "weights")
_NO_COUNTER = -1


def export_checkpoint(
    checkpoint: FlowCheckpoint, make: Callable[[], nn.Module], entry: Entry
) -> None:
    """Export a checkpoint into its entry of the cache.

    Args:
        checkpoint: The checkpoint.
        make: Makes the family's network.
        entry: Where it goes; what lies there is replaced.

    Raises:
        ConfigError: The weights do not fit, the engine cannot express the network, or the cache
            cannot be written.
    """
    spec = checkpoint.spec("exported")
    runner = FlowRunner(spec, checkpoint, make, Placement(kv_slots=1, precision="f32"))
    runner.load()
    layouts = range(len(spec.layouts))

    def write(to: Entry) -> None:
        for stage, graph in _graphs(checkpoint, runner.network).items():
            ov.save_model(graph, str(to.graph(stage)), compress_to_fp16=False)
            log.info("exported: stage=%s", stage.name.lower())
        chunks = reference_chunks(runner, checkpoint, layouts)
        np.savez(to.folder / EXPECTED, chunks=chunks)

    store(entry, write)


def _graphs(checkpoint: FlowCheckpoint, network: Any) -> dict[Stage, ov.Model]:  # noqa: ANN401
    examples = _Examples(checkpoint)
    try:
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that what is fixed by a layout is fixed in the trace
            prefix_names, prefix_inputs = examples.prefix()
            prefix = _converted(_Prefix(network, prefix_names), prefix_inputs, prefix_names)
            begin = _Begin(network, checkpoint.config.horizon)
            start = examples.begin()
            shared = begin(*start)
            begin_graph = _converted(begin, start, ("kv", "counts", "state"))
            names = (*_STEP_INPUTS, *(f"{_SHARED}.{i}" for i in range(len(shared))))
            step = _converted(_Step(network, begin.kind), (*examples.step(network), *shared), names)
    except Exception as error:  # the tracer and the front end raise many kinds
        reason = (str(error) or type(error).__name__).splitlines()[0][:300]
        raise ConfigError(f"the network cannot be exported: {reason}") from error
    return {Stage.PREFIX: prefix, Stage.DENOISE: _looped(checkpoint, network, begin_graph, step)}


class _Prefix(nn.Module):
    """The prefix stage, its real tokens moved to the front."""

    def __init__(self, network: Any, names: Sequence[str]) -> None:  # noqa: ANN401
        super().__init__()
        self.network = network
        self.names = names

    def forward(self, *given: Tensor) -> tuple[Tensor, Tensor]:
        inputs = dict(zip(self.names, given, strict=True))
        inputs.setdefault("state", torch.zeros(0))
        result = compacted(self.network.prefix(PrefixInputs(**inputs)))
        return result.kv, result.real.sum(1)


class _Begin(nn.Module):
    """What all steps of a denoise launch share, as a plain tuple."""

    kind: Any = None
    """Type of the family's own tuple."""

    def __init__(self, network: Any, horizon: int) -> None:  # noqa: ANN401
        super().__init__()
        self.network = network
        self.horizon = horizon

    def forward(self, kv: Tensor, counts: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        real = torch.arange(kv.shape[4])[None, :] < counts[:, None]
        shared = self.network.begin(PrefixResult(kv=kv, real=real), state, self.horizon, silent)
        self.kind = type(shared)
        return tuple(shared)


class _Step(nn.Module):
    """One Euler step with guidance."""

    def __init__(self, network: Any, kind: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.network = network
        self.kind = kind
        self.length = -1.0 / network.config.num_steps

    def forward(
        self,
        x: Tensor,
        *given: Tensor,
    ) -> Tensor:
        embedding, time, gain, previous, weights, *shared = given
        velocity = self.network.velocity(x, embedding, self.kind(*shared), silent)
        flow = FlowInputs(noise=x, previous=previous, weights=weights)
        return x + self.length * guided(velocity, x, flow, time, gain)


class _Examples:
    """Inputs to trace with. Only their ranks and types matter."""

    def __init__(self, checkpoint: FlowCheckpoint) -> None:
        self._checkpoint = checkpoint
        self._layout = checkpoint.layouts[-1]

    def prefix(self) -> tuple[tuple[str, ...], tuple[Tensor, ...]]:
        config, rows = self._checkpoint.config, _EXAMPLE_ROWS
        inputs = {
            "images": torch.zeros(rows, self._layout.images, config.height, config.width, 3),
            "num_images": torch.ones(rows, dtype=torch.int32),
            "tokens": torch.zeros(rows, self._layout.tokens, dtype=torch.int32),
            "num_tokens": torch.ones(rows, dtype=torch.int32),
        }
        if self._checkpoint.family.state_in_prefix:
            inputs["state"] = torch.zeros(rows, config.max_state_dim)
        return tuple(inputs), tuple(inputs.values())

    def begin(self) -> tuple[Tensor, ...]:
        sizes = self._checkpoint.sizes
        length = sizes.prefix_length(self._layout)
        kv = torch.zeros(_EXAMPLE_ROWS, sizes.num_layers, 2, sizes.kv_heads, length, sizes.head_dim)
        counts = torch.full((_EXAMPLE_ROWS,), length, dtype=torch.int64)
        return kv, counts, torch.zeros(_EXAMPLE_ROWS, self._checkpoint.config.max_state_dim)

    def step(self, network: Any) -> tuple[Tensor, ...]:  # noqa: ANN401
        config = self._checkpoint.config
        chunk = torch.zeros(_EXAMPLE_ROWS, config.horizon, config.max_action_dim)
        return chunk, network.times[:1], torch.ones(1), torch.ones(1), chunk, chunk[:, :, 0]


def _converted(module: nn.Module, inputs: tuple[Tensor, ...], names: Sequence[str]) -> ov.Model:
    # The second trace that the tracer compares with takes as long as the first; the gate is better.
    decoder = TorchScriptPythonDecoder(
        module.eval(), example_input=inputs, trace_kwargs={"check_trace": False}
    )
    front_end: Any = FrontEndManager().load_by_framework("pytorch")
    model: ov.Model = front_end.convert(front_end.load(decoder))
    for port, name in zip(model.inputs, names, strict=True):
        port.get_tensor().set_names({name})
    return model


def _looped(checkpoint: FlowCheckpoint, network: Any, begin: ov.Model, step: ov.Model) -> ov.Model:  # noqa: ANN401
    """The denoise stage: what the steps share, then all steps."""
    config = checkpoint.config
    chunk = [-1, config.horizon, config.max_action_dim]
    noise = _parameter("noise", chunk)
    previous = _parameter("previous_chunk", chunk)
    weights = _parameter("prefix_weights", chunk[:2])
    x, embedding, time, gain, inner_previous, inner_weights, *shared = step.get_parameters()
    reached = step.get_results()[0]
    go_on = _ops.result(_ops.constant(np.array(True)))
    body = _new_model([go_on, reached], step.get_parameters(), "step")
    loop = _ops.loop(_ops.constant(np.int64(config.num_steps)), _ops.constant(np.array(True)))
    loop.set_function(body)
    loop.set_special_body_ports([_NO_COUNTER, 0])
    loop.set_merged_input(x, noise.output(0), reached.output(0))
    for inner, table in (
        (embedding, network.times.numpy()),
        (time, step_times(config.num_steps)),
        (gain, guidance_of(config.num_steps, config.max_guidance)),
    ):
        # start, stride, length of a part, end, axis
        loop.set_sliced_input(inner, _ops.constant(table).output(0), 0, 1, 1, -1, 0)
    loop.set_invariant_input(inner_previous, previous.output(0))
    loop.set_invariant_input(inner_weights, weights.output(0))
    for inner, made in zip(shared, begin.get_results(), strict=True):
        loop.set_invariant_input(inner, made.input_value(0))
    result = _ops.result(loop.get_iter_value(reached.output(0), -1))
    # A family that reads the state in its prefix leaves this input without a reader.
    read = [
        parameter for parameter in begin.get_parameters() if parameter.output(0).get_target_inputs()
    ]
    return _new_model([result], [*read, noise, previous, weights], "denoise")


def _parameter(name: str, shape: list[int]) -> Any:  # noqa: ANN401 - a Node
    node = _ops.parameter(shape, np.float32, name=name)
    node.output(0).set_names({name})
    return node
