"""Opens a LeRobot checkpoint directory as a policy: which family, which parts.

A family is an entry of :data:`FAMILIES`. Torch is imported when a network is made, in the worker,
and nowhere else.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from takt.errors import ConfigError
from takt.policies.interface import Decoder, Network, Placement, Precision, Preprocessor
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
from takt.policies.smolvla.sizes import SMOLVLA, SmolvlaSizes, read_smolvla_sizes, special_ids
from takt.schema.plain import read_plain
from takt.schema.spec import PolicySpec

if TYPE_CHECKING:
    from takt.policies.compiled.cache import Entry

__all__ = [
    "FAMILIES",
    "CheckpointOptions",
    "Engine",
    "OpenParts",
    "UnknownFamilyError",
    "export_entry",
    "family_of",
    "make_network",
    "open_checkpoint",
    "open_parts",
]


log = logging.getLogger(__name__)

Engine: TypeAlias = Literal["torch", "openvino"]
"""What computes a network."""


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
    stock_resize: bool = False
    """Whether images are first stretched to the size of the training data, as LeRobot's own
    asynchronous server does it: for comparisons with one."""
    deterministic: bool = False
    """Whether every row runs alone, so that its chunk is the same to the last bit whatever else is
    served."""
    engine: Engine = "torch"
    """What computes: torch, or OpenVINO with graphs that are exported once."""
    precision: Precision = "auto"
    """Number format inside the network; ``auto``: what the worker says, else f32."""
    cache: str | None = None
    """Folder of exports; None: the user's cache."""


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
        return FlowPreprocessor(spec, checkpoint, stock_resize=read.stock_resize)

    def decoder() -> Decoder:
        from takt.policies.lerobot.rows import FlowDecoder

        return FlowDecoder(checkpoint)

    def network(placement: Placement) -> Network:
        if read.precision != "auto":
            placement = replace(placement, precision=read.precision)
        if read.engine == "openvino":
            return _compiled(spec, checkpoint, placement, read.cache)
        # Beside another busy process, a team of threads that spins while it waits collapses.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        try:
            from takt.policies.networks.serving import FlowRunner
        except ImportError as error:
            raise _needs_torch(name, error) from error
        return FlowRunner(spec, checkpoint, partial(make_network, checkpoint), placement)

    return OpenParts(checkpoint, preprocessor, network, decoder)


def export_entry(checkpoint: FlowCheckpoint, cache: str | None, *, anew: bool = False) -> Entry:
    """The checkpoint's export for OpenVINO, made where it is missing.

    Args:
        checkpoint: The checkpoint.
        cache: Folder of exports; None: the user's cache.
        anew: Whether it is made in any case.

    Raises:
        ConfigError: It cannot be made; without torch it has to be in the cache.
    """
    from takt.policies.compiled.cache import default_cache, entry_of, export_key

    folder = default_cache() if cache is None else Path(cache)
    entry = entry_of(folder, export_key(checkpoint, _special_ids(checkpoint)))
    if entry.is_there and not anew:
        return entry
    path = checkpoint.files.directory
    log.warning("exporting for OpenVINO, once for this checkpoint: checkpoint=%s", path)
    try:
        from takt.policies.compiled.export import export_checkpoint
    except ImportError as error:
        raise _needs_torch(str(path), error) from error
    export_checkpoint(checkpoint, partial(make_network, checkpoint), entry)
    return entry


def _compiled(
    spec: PolicySpec, checkpoint: FlowCheckpoint, placement: Placement, cache: str | None
) -> Network:
    try:
        from takt.policies.compiled.network import CompiledNetwork
    except ImportError as error:
        raise ConfigError(
            f"{spec.name}: the engine openvino needs the package {error.name}:"
            " pip install 'takt-serve[server]'"
        ) from error
    return CompiledNetwork(spec, checkpoint, placement, partial(export_entry, checkpoint, cache))


def _needs_torch(name: str, error: ImportError) -> ConfigError:
    return ConfigError(
        f"{name}: computing it needs torch (missing: {error.name}); install the build for"
        " this host's device: https://pytorch.org/get-started/locally"
    )


def _special_ids(checkpoint: FlowCheckpoint) -> tuple[int, ...]:
    sizes = checkpoint.sizes
    return special_ids(checkpoint.tokenizer, sizes) if isinstance(sizes, SmolvlaSizes) else ()


def make_network(checkpoint: FlowCheckpoint) -> Any:  # noqa: ANN401 - a torch module
    """The checkpoint's network, without weights; imports torch."""
    sizes, config = checkpoint.sizes, checkpoint.config
    if isinstance(sizes, SmolvlaSizes):
        from takt.policies.smolvla.network import SmolvlaNetwork

        return SmolvlaNetwork(sizes, config, _special_ids(checkpoint))
    from takt.policies.pi0.network import Pi0Network

    return Pi0Network(sizes, config)  # pyright: ignore[reportArgumentType]
