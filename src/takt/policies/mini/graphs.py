# ruff: noqa: D102 - the methods are described in structure.Ops
"""The `mini` network as OpenVINO graphs, one per stage and batch size, built in memory.

All graphs share the arrays of the weights. The denoise graph loops over its Euler steps itself: one
call per launch, so a lane waits for the interpreter once and not once per step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13

from takt.policies.mini import structure
from takt.policies.mini.sizes import MiniSizes, StemLayer
from takt.policies.mini.structure import Step

__all__ = [
    "HEAD_AXES",
    "NO_COUNTER",
    "Node",
    "OpenvinoOps",
    "Weights",
    "denoise_graph",
    "new_model",
    "opset",
    "prefix_graph",
]

Node: TypeAlias = ov.Node
Weights: TypeAlias = Mapping[str, NDArray[np.float32]]

HEAD_AXES = [0, 2, 1, 3]
NO_COUNTER = -1
"""The body of a loop does not ask for the number of its step."""

# OpenVINO's annotations are incomplete; everything these make is a Node.
opset: Any = opset13
new_model: Any = ov.Model


class OpenvinoOps:
    """:class:`~takt.policies.mini.structure.Ops` over graph nodes.

    Args:
        weights: Tensors by the names of :func:`~takt.policies.mini.sizes.tensor_shapes`. The
            arrays must outlive the graphs.
    """

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._nodes: dict[str, Node] = {}

    def _weight(self, name: str) -> Node:
        if name not in self._nodes:
            self._nodes[name] = opset.constant(self._weights[name], shared_memory=True)
        return self._nodes[name]

    def tensor(self, name: str) -> Node:
        return opset.unsqueeze(self._weight(name), _ints(0))

    def constant(self, value: NDArray[np.float32]) -> Node:
        return opset.constant(value)

    def pixels(self, images: Node) -> Node:
        scaled = opset.multiply(opset.convert(images, "f32"), np.float32(1 / 127.5))
        return opset.transpose(opset.subtract(scaled, np.float32(1)), _ints(0, 3, 1, 2))

    def convolution(self, x: Node, name: str, layer: StemLayer) -> Node:
        pads = [layer.padding, layer.padding]
        strides = [layer.stride, layer.stride]
        kernel = self._weight(f"{name}.weight")
        summed = opset.convolution(x, kernel, strides, pads, pads, [1, 1])
        bias = opset.reshape(self._weight(f"{name}.bias"), _ints(1, -1, 1, 1), special_zero=False)
        return opset.add(summed, bias)

    def as_tokens(self, x: Node) -> Node:
        flat = opset.reshape(x, _ints(0, 0, -1), special_zero=True)
        return opset.transpose(flat, _ints(0, 2, 1))

    def embedding(self, ids: Node, name: str) -> Node:
        return opset.gather(self._weight(f"{name}.weight"), ids, _int(0))

    def linear(self, x: Node, name: str) -> Node:
        product = opset.matmul(x, self._weight(f"{name}.weight"), False, True)
        return opset.add(product, self._weight(f"{name}.bias"))

    def norm(self, x: Node, name: str) -> Node:
        normed = opset.mvn(x, _ints(-1), True, 1e-5, "inside_sqrt")
        scaled = opset.multiply(normed, self._weight(f"{name}.weight"))
        return opset.add(scaled, self._weight(f"{name}.bias"))

    def gelu(self, x: Node) -> Node:
        return opset.gelu(x, "tanh")

    def add(self, a: Node, b: Node) -> Node:
        return opset.add(a, b)

    def multiply(self, a: Node, b: Node) -> Node:
        return opset.multiply(a, b)

    def expand_batch(self, x: Node, like: Node) -> Node:
        return opset.tile(x, _ints(int(like.output(0).shape[0]), 1, 1))

    def join_tokens(self, parts: Sequence[Node]) -> Node:
        return opset.concat(list(parts), 1)

    def cut_tokens(self, x: Node, start: int, stop: int) -> Node:
        return opset.slice(x, _ints(start), _ints(stop), _ints(1), _ints(1))

    def token_of(self, x: Node) -> Node:
        return opset.unsqueeze(x, _ints(1))

    def stack_layers(self, parts: Sequence[Node]) -> Node:
        return opset.concat([opset.unsqueeze(part, _ints(1)) for part in parts], 1)

    def layer_of(self, stacked: Node, index: int) -> Node:
        return opset.gather(stacked, _int(index), _int(1))

    def keys_and_values(self, x: Node, heads: int) -> tuple[Node, Node]:
        split = opset.reshape(x, _ints(0, 0, 2, heads, -1), special_zero=True)
        ordered = opset.transpose(split, _ints(2, 0, 3, 1, 4))
        return (
            opset.gather(ordered, _int(0), _int(0)),
            opset.gather(ordered, _int(1), _int(0)),
        )

    def attention(self, query: Node, keys: Sequence[Node], values: Sequence[Node]) -> Node:
        # Not the fused attention operation: at these sizes it took longer.
        k, v = _joined(keys), _joined(values)
        _, heads, _, width = (int(length) for length in k.output(0).shape)
        split = opset.reshape(query, _ints(0, 0, heads, width), special_zero=True)
        q = opset.transpose(split, _ints(*HEAD_AXES))
        scores = opset.matmul(opset.multiply(q, np.float32(width**-0.5)), k, False, True)
        mixed = opset.matmul(opset.softmax(scores, -1), v, False, False)
        merged = opset.transpose(mixed, _ints(*HEAD_AXES))
        return opset.reshape(merged, _ints(0, 0, -1), special_zero=True)

    def iterate(
        self, step: Step[Node], x: Node, tables: Sequence[Node], fixed: Sequence[Node]
    ) -> Node:
        inner_x = opset.parameter(list(x.output(0).shape), np.float32)
        rows = [
            opset.parameter([1, *list(table.output(0).shape)[1:]], np.float32) for table in tables
        ]
        inner_fixed = [opset.parameter(list(value.output(0).shape), np.float32) for value in fixed]
        result = opset.result(step(OpenvinoOps(self._weights), inner_x, rows, inner_fixed))
        go_on = opset.result(opset.constant(np.array(True)))
        body = new_model([go_on, result], [inner_x, *rows, *inner_fixed])
        num_steps = int(tables[0].output(0).shape[0])
        loop = opset.loop(opset.constant(np.int64(num_steps)), opset.constant(np.array(True)))
        loop.set_function(body)
        loop.set_special_body_ports([NO_COUNTER, 0])
        loop.set_merged_input(inner_x, x.output(0), result.output(0))
        for row, table in zip(rows, tables, strict=True):
            # start, stride, length of a part, end, axis
            loop.set_sliced_input(row, table.output(0), 0, 1, 1, -1, 0)
        for inner, value in zip(inner_fixed, fixed, strict=True):
            loop.set_invariant_input(inner, value.output(0))
        return loop.get_iter_value(result.output(0), -1)


def prefix_graph(sizes: MiniSizes, weights: Weights, batch: int) -> ov.Model:
    """The prefix stage for ``batch`` rows.

    Inputs ``image`` ``(batch, size, size, 3)`` uint8 and ``words`` ``(batch, num_words)`` int32;
    output the rows' keys and values, ``(batch, *sizes.kv_shape)``.
    """
    image_shape = [batch, sizes.image_size, sizes.image_size, 3]
    image = _input("image", image_shape, np.uint8)
    words = _input("words", [batch, sizes.num_words], np.int32)
    kv = structure.prefix(OpenvinoOps(weights), sizes, image, words)
    return new_model([kv], [image, words], "mini prefix")


def denoise_graph(sizes: MiniSizes, weights: Weights, batch: int, num_steps: int) -> ov.Model:
    """The denoise stage for ``batch`` rows, all Euler steps.

    Inputs as :func:`takt.policies.mini.structure.denoise` names them (``previous`` is the slot's
    ``previous_chunk``), float32; output ``(batch, horizon, action_dim)``.
    """
    chunk = [batch, sizes.horizon, sizes.action_dim]
    inputs = {
        "kv": _input("kv", [batch, *sizes.kv_shape]),
        "state": _input("state", [batch, sizes.state_dim]),
        "noise": _input("noise", chunk),
        "previous": _input("previous_chunk", chunk),
        "hold": _input("hold", [batch, sizes.horizon, 1]),
    }
    actions = structure.denoise(OpenvinoOps(weights), sizes, num_steps, **inputs)
    return new_model([actions], list(inputs.values()), "mini denoise")


def _input(name: str, shape: list[int], dtype: Any = np.float32) -> Node:  # noqa: ANN401 - a NumPy type
    node = opset.parameter(shape, dtype, name=name)
    node.output(0).set_names({name})
    return node


def _joined(parts: Sequence[Node]) -> Node:
    return parts[0] if len(parts) == 1 else opset.concat(list(parts), 2)


def _ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def _int(value: int) -> Any:  # noqa: ANN401 - a NumPy scalar, which opset's types do not name
    return np.int64(value)
