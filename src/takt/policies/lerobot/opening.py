"""Opens a LeRobot checkpoint directory as a policy: which family, which parts.

A family is an entry of :data:`FAMILIES`. Torch is imported when a network is made, in the worker,
and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from takt.errors import ConfigError
from takt.policies.interface import Decoder, Network, Placement, Preprocessor
from takt.policies.lerobot.checkpoint import (
    CONFIG_FILE,
    FlowCheckpoint,
    SizesReader,
    open_flow,
)
from takt.policies.lerobot.documents import read_document
from takt.policies.lerobot.family import Family
from takt.policies.lerobot.paths import CheckpointFiles, checkpoint_files
from takt.policies.pi0.sizes import PI0, read_pi0_sizes
from takt.policies.smolvla.sizes import SMOLVLA, read_smolvla_sizes
from takt.schema.plain import read_plain

__all__ = [
    "FAMILIES",
    "CheckpointOptions",
    "OpenParts",
    "UnknownFamilyError",
    "family_of",
    "make_network",
    "open_checkpoint",
    "open_parts",
]


class _Registered(NamedTuple):
    family: Family
    read_sizes: SizesReader


FAMILIES: Mapping[str, _Registered] = {
    "pi0": _Registered(PI0, read_pi0_sizes),
    "smolvla": _Registered(SMOLVLA, read_smolvla_sizes),
}
"""Families that can be served, by the ``type`` in config.json."""


class UnknownFamilyError(ConfigError):
    """The checkpoint is of a family that this version does not serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOptions:
    """How a checkpoint is served."""

    tokenizer: str | None = None
    """Path of the tokenizer, a file or a directory; None: the checkpoint's, or the local Hugging
    Face cache's."""
    root: str | None = None
    """Folder that no file of the checkpoint may lie outside of; None: its own directory."""
    prefix_sizes: tuple[int, ...] = (1, 2)
    """Batch sizes of the prefix stage."""
    denoise_sizes: tuple[int, ...] = (1, 2, 4)
    """Batch sizes of the denoise stage."""
    deterministic: bool = False
    """Whether every row runs alone, so that its chunk is the same to the last bit whatever else is
    served."""


def family_of(files: CheckpointFiles) -> str:
    """The family a checkpoint names.

    Raises:
        ConfigError: config.json is missing or names none.
    """
    return read_document(files.path(CONFIG_FILE)).take_text("type")


def open_checkpoint(path: Path, options: CheckpointOptions) -> FlowCheckpoint:
    """Open a checkpoint directory.

    Raises:
        UnknownFamilyError: We do not serve its family.
        ConfigError: Anything else about it is wrong.
    """
    files = checkpoint_files(path, None if options.root is None else Path(options.root))
    name = family_of(files)
    if name not in FAMILIES:
        raise UnknownFamilyError(
            f"{path}: family {name[:60]!r} is not served; served: {', '.join(FAMILIES)}"
        )
    family, read_sizes = FAMILIES[name]
    return open_flow(
        files,
        family,
        read_sizes,
        tokenizer=None if options.tokenizer is None else Path(options.tokenizer),
        prefix_sizes=(1,) if options.deterministic else options.prefix_sizes,
        denoise_sizes=(1,) if options.deterministic else options.denoise_sizes,
    )


class OpenParts(NamedTuple):
    """A checkpoint's parts; :mod:`takt.policies.catalog` makes a policy of them."""

    checkpoint: FlowCheckpoint
    preprocessor: Callable[[], Preprocessor]
    network: Callable[[Placement], Network]
    decoder: Callable[[], Decoder]


def open_parts(name: str, path: Path, options: Mapping[str, object]) -> OpenParts:
    """Open a checkpoint as the policy ``name``.

    Raises:
        ConfigError: As :func:`open_checkpoint`, or an option is not known.
    """
    plain = {
        key: str(value) if isinstance(value, Path) else value for key, value in options.items()
    }
    read = read_plain(CheckpointOptions, plain, f"options of {name}")
    checkpoint = open_checkpoint(path, read)
    spec = checkpoint.spec(name)

    def preprocessor() -> Preprocessor:
        from takt.policies.lerobot.rows import FlowPreprocessor

        _ = checkpoint.tokenizer  # its faults belong to the start, not to a robot's request
        return FlowPreprocessor(spec, checkpoint)

    def decoder() -> Decoder:
        from takt.policies.lerobot.rows import FlowDecoder

        return FlowDecoder(checkpoint)

    def network(placement: Placement) -> Network:
        # Beside another busy process, a team of threads that spins while it waits collapses.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        try:
            from takt.policies.networks.serving import FlowRunner
        except ImportError as error:
            raise ConfigError(
                f"{name}: computing it needs torch (missing: {error.name}); install the build for"
                " this host's device: https://pytorch.org/get-started/locally"
            ) from error
        return FlowRunner(spec, checkpoint, partial(make_network, checkpoint), placement)

    return OpenParts(checkpoint, preprocessor, network, decoder)


def make_network(checkpoint: FlowCheckpoint) -> Any:  # noqa: ANN401 - a torch module
    """The checkpoint's network, without weights; imports torch."""
    sizes, config = checkpoint.sizes, checkpoint.config
    if checkpoint.family is PI0:
        from takt.policies.pi0.network import Pi0Network

        return Pi0Network(sizes, config)  # pyright: ignore[reportArgumentType]
    from takt.policies.smolvla.network import SmolvlaNetwork
    from takt.policies.smolvla.sizes import special_ids

    return SmolvlaNetwork(sizes, config, special_ids(checkpoint.tokenizer, sizes))  # pyright: ignore[reportArgumentType]
