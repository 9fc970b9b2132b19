# pyright: basic, reportMissingImports=false
# Torch's annotations are incomplete, and `make check` also runs where torch is not installed.
"""Weights into parameters, all or nothing.

A network is made without memory, its parameters are compared with the file's header, and only then
bytes are read. Every parameter is filled from one tensor and every tensor is used; anything
else is an error that lists what is wrong.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from takt.errors import ConfigError
from takt.policies.lerobot.names import NameRules, check_tensors
from takt.policies.lerobot.tensor_file import TensorFile

__all__ = ["load_network"]

Net = TypeVar("Net", bound=nn.Module)

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_NARROWED = ("language.", "expert.")
"""Parts whose matrices take the narrow number format; norms, vision and projections do not."""


def load_network(
    make: Callable[[], Net], path: Path, rules: NameRules, *, precision: str, device: str
) -> Net:
    """Make a network and fill it.

    Args:
        make: Makes it; called where tensors take no memory.
        path: The weights.
        rules: How the file names them.
        precision: ``f32`` or ``bf16``.
        device: Where it runs, as torch spells it.

    Raises:
        ConfigError: The file is damaged, or does not fill the network exactly, or holds NaN or
            infinity.
    """
    with torch.device("meta"):
        network = make()
    empty = dict(network.named_parameters())
    shapes = {name: tuple(parameter.shape) for name, parameter in empty.items()}
    with TensorFile(path) as file:
        names = rules.translate(file.tensors)
        check_tensors(path, shapes, names, file.tensors)
        for name in empty:
            tensor = _read(file, names[name]).to(device, _dtype(name, shapes[name], precision))
            _set(network, name, nn.Parameter(tensor, requires_grad=False))
    gc.collect()
    return network.to(device).eval()


def _read(file: TensorFile, name: str) -> Tensor:
    stored = file.tensors[name]
    flat = torch.frombuffer(file.raw(name), dtype=_DTYPES[stored.dtype])
    if not bool(torch.isfinite(flat).all()):
        raise ConfigError(f"{file.path}: {name} holds NaN or infinity")
    return flat.reshape(stored.shape)


def _dtype(name: str, shape: tuple[int, ...], precision: str) -> torch.dtype:
    is_matrix = len(shape) > 1 and name.startswith(_NARROWED)
    return torch.bfloat16 if precision == "bf16" and is_matrix else torch.float32


def _set(network: nn.Module, name: str, parameter: nn.Parameter) -> None:
    owner, _, last = name.rpartition(".")
    setattr(network.get_submodule(owner), last, parameter)
