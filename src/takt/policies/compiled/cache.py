"""Where exported graphs lie, and when they are out of date.

An entry is a folder named by what its graphs depend on: the checkpoint, its sizes and layouts, the
version of the engine, and the code of the networks. A change of any of it gives another name, so
an entry is never stale: it is found or it is not. An entry appears whole or not at all.

Start reading at :func:`export_key`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import openvino as ov

import takt.policies
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.policies.interface import FloatArray
from takt.policies.lerobot.checkpoint import FlowCheckpoint
from takt.policies.lerobot.sizes import DIMS_FILE

__all__ = ["EXPECTED", "Entry", "default_cache", "entry_of", "export_key", "store"]

EXPECTED = "expected.npz"
"""File with the reference's chunks."""

_FORMAT = "1"
_KEY_LETTERS = 32
_NETWORK_CODE = (
    "compiled",
    "networks",
    "pi0",
    "smolvla",
    "guidance.py",
    "lerobot/config.py",
    "lerobot/layouts.py",
    "lerobot/sizes.py",
)
"""What graphs are made by, seen from :mod:`takt.policies`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The folder of one export."""

    folder: Path

    @property
    def is_there(self) -> bool:
        """Whether the export has been made."""
        # In a folder that is closed to us, pathlib raises where os.path says no.
        return os.path.isfile(self.folder / EXPECTED)

    def graph(self, stage: Stage) -> Path:
        """File of a stage's graph; its weights lie beside it."""
        return self.folder / f"{stage.name.lower()}.xml"

    def expected(self) -> FloatArray:
        """The reference's chunks, ``(layouts, rows, horizon, model_action_dim)``.

        Raises:
            ConfigError: The file cannot be read.
        """
        path = self.folder / EXPECTED
        try:
            with path.open("rb") as data, np.load(data, allow_pickle=False) as file:
                return np.asarray(file["chunks"], np.float32)
        except (OSError, ValueError, EOFError, TypeError, KeyError, zipfile.BadZipFile) as error:
            raise ConfigError(
                f"{path}: cannot be read: {error}; export the checkpoint anew with takt export"
            ) from error


def default_cache() -> Path:
    """The user's folder for exports."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "takt" / "engines"


def export_key(checkpoint: FlowCheckpoint, special_ids: tuple[int, ...]) -> str:
    """Digest of everything an export depends on.

    Args:
        checkpoint: The checkpoint.
        special_ids: Tokens of its tokenizer that the network holds.
    """
    files = checkpoint.files
    dims = files.path(DIMS_FILE).read_bytes() if files.has(DIMS_FILE) else b""
    digest = hashlib.sha256()
    for part in (
        _FORMAT.encode(),
        ov.__version__.encode(),
        checkpoint.digest.encode(),
        hashlib.sha256(dims).digest(),
        repr(tuple(map(tuple, checkpoint.layouts))).encode(),
        repr(special_ids).encode(),
        _code_digest(),
    ):
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.hexdigest()[:_KEY_LETTERS]


def entry_of(cache: Path, key: str) -> Entry:
    """The entry of a key, there or not."""
    return Entry(folder=cache / key)


def store(entry: Entry, write: Callable[[Entry], None]) -> None:
    """Let ``write`` fill a folder beside the entry, and put it in its place when it is whole.

    Raises:
        ConfigError: The cache cannot be written.
    """
    cache = entry.folder.parent
    try:
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{entry.folder.name}-", dir=cache))
        try:
            write(Entry(folder=fresh))
            shutil.rmtree(entry.folder, ignore_errors=True)
            _put(fresh, entry)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise ConfigError(f"{cache}: the cache cannot be written: {error}") from error


def _put(fresh: Path, entry: Entry) -> None:
    try:
        fresh.rename(entry.folder)
    except OSError:
        if not entry.is_there:  # else another worker was faster, with the same content
            raise


def _code_digest() -> bytes:
    root = Path(takt.policies.__file__).parent
    digest = hashlib.sha256()
    for part in _NETWORK_CODE:
        path = root / part
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.digest()
