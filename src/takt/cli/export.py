"""``takt export``: a checkpoint's graphs for the CPU engine, and how exact they are."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import tyro

from takt.cli.input_files import check_folder, check_tokenizer
from takt.errors import ConfigError
from takt.policies.interface import Placement, Precision

if TYPE_CHECKING:
    from takt.policies.compiled.cache import Entry
    from takt.policies.lerobot.checkpoint import FlowCheckpoint

__all__ = ["Export"]

_MOST_ROWS = 64


class _Difference(NamedTuple):
    precision: Precision
    largest: float
    """Largest difference from torch, in units of model space."""
    share: float
    """The same as a share of the largest value of the reference's chunks."""
    allowed: float
    """Largest share that the gate lets through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Export a LeRobot checkpoint for OpenVINO, and measure how far its chunks are from torch's.

    'takt serve --engine openvino' uses the export, and makes it where it is missing. Exit status 1
    when a layout or batch size is further off than its number format explains.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Directory of the checkpoint."""
    precision: Literal["all", "f32", "bf16"] = "all"
    """Number formats to measure; the graphs are the same. all: those this CPU has."""
    batch_sizes: tuple[int, ...] = ()
    """Batch sizes to measure, of both stages; those of 'takt serve' when absent."""
    cache: Path | None = None
    """Folder of exports; takt/engines in the user's cache when absent."""
    tokenizer: Path | None = None
    """Tokenizer of the checkpoint, a file or a directory."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        """Export, measure and print."""
        sizes = tuple(sorted(set(self.batch_sizes)))
        if sizes and not 1 <= sizes[0] <= sizes[-1] <= _MOST_ROWS:
            raise ConfigError(f"--batch-sizes: expected 1..{_MOST_ROWS}, got {self.batch_sizes}")
        check_folder("--cache", self.cache)
        check_tokenizer(self.tokenizer)
        from takt.policies.lerobot.opening import CheckpointOptions, export_entry, open_checkpoint

        options = CheckpointOptions(
            tokenizer=None if self.tokenizer is None else str(self.tokenizer)
        )
        if sizes:
            options = dataclasses.replace(options, prefix_sizes=sizes, denoise_sizes=sizes)
        checkpoint = open_checkpoint(self.path, options)
        try:
            entry = export_entry(
                checkpoint, None if self.cache is None else str(self.cache), anew=True
            )
            found = [_difference(checkpoint, entry, precision) for precision in self._precisions()]
        except ImportError as error:
            raise ConfigError(f"exporting needs the package {error.name}") from error
        print(self._document(entry, found) if self.json else _lines(checkpoint, entry, found))

    def _precisions(self) -> list[Precision]:
        from takt.policies.compiled.network import has_bf16

        if self.precision != "all":
            return [self.precision]
        return ["f32", "bf16"] if has_bf16() else ["f32"]

    def _document(self, entry: Entry, found: list[_Difference]) -> str:
        document = {
            "checkpoint": str(self.path),
            "export": str(entry.folder),
            "differences": [difference._asdict() for difference in found],
        }
        return json.dumps(document, indent=2)


def _difference(checkpoint: FlowCheckpoint, entry: Entry, precision: Precision) -> _Difference:
    import numpy as np

    from takt.policies.compiled.gate import TOLERANCES
    from takt.policies.compiled.network import CompiledNetwork

    spec = checkpoint.spec(checkpoint.files.directory.resolve().name)
    most = max(*spec.prefix_sizes, *spec.denoise_sizes)
    placement = Placement(kv_slots=most, precision=precision)
    network = CompiledNetwork(spec, checkpoint, placement, lambda: entry)
    network.load()
    largest = float(np.abs(entry.expected()).max())
    return _Difference(
        precision, network.difference, network.difference / largest, TOLERANCES[precision]
    )


def _lines(checkpoint: FlowCheckpoint, entry: Entry, found: list[_Difference]) -> str:
    layouts = len(checkpoint.layouts)
    lines = [f"{checkpoint.family.name}: {layouts} layouts, exported to {entry.folder}"]
    lines += [
        f"{each.precision:<5} off by up to {each.largest:.1e}, {100 * each.share:.2g} % of the"
        f" largest value; {100 * each.allowed:g} % is allowed"
        for each in found
    ]
    return "\n".join(lines)
