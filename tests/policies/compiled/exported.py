"""Exports of the golden checkpoints, made once for all tests of this folder."""

import functools
import shutil
import tempfile
from pathlib import Path

from tests.policies.lerobot.checkpoints import opened

from takt.policies.compiled.cache import Entry
from takt.policies.compiled.network import CompiledNetwork
from takt.policies.interface import Placement, Precision
from takt.policies.lerobot.checkpoint import FlowCheckpoint
from takt.policies.lerobot.opening import CheckpointOptions, export_entry

SIZES = CheckpointOptions(prefix_sizes=(1, 3), denoise_sizes=(1, 2, 4))


@functools.cache
def _cache() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="takt-exports-")


@functools.cache
def exported(golden: Path) -> Entry:
    """The export of a golden checkpoint. Copy it before changing it."""
    return export_entry(opened(golden), _cache().name)


def copied(entry: Entry, to: Path) -> Entry:
    """A copy to damage."""
    shutil.copytree(entry.folder, to / entry.folder.name)
    return Entry(folder=to / entry.folder.name)


def network_of(
    checkpoint: FlowCheckpoint, entry: Entry, precision: Precision = "f32"
) -> CompiledNetwork:
    """The engine's network, not loaded."""
    placement = Placement(kv_slots=6, precision=precision)
    return CompiledNetwork(checkpoint.spec("arm"), checkpoint, placement, lambda: entry)
