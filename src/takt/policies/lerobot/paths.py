"""Which files of this machine a checkpoint may be.

A name that comes over a network is resolved inside configured folders and nowhere else; a
directory that the operator types is trusted, the files in it must still lie in it. Links are
followed only while they stay inside: a checkpoint in a Hugging Face cache consists of links to the
cache's own ``blobs``, which are therefore inside.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from takt.errors import ConfigError

__all__ = ["CheckpointFiles", "checkpoint_files", "resolve_model"]

_SNAPSHOTS = "snapshots"
_REPOSITORY_PREFIX = "models--"
_MAX_NAME_LETTERS = 300


def resolve_model(name: str, roots: Sequence[Path]) -> CheckpointFiles:
    """The directory that ``name`` means inside one of ``roots``, which its files may not leave.

    Args:
        name: A relative path such as ``team/fold/pretrained_model``, as a fleet file has it.
        roots: Folders models are kept in, in the order in which they are searched.

    Raises:
        ConfigError: The name is absolute, a URL, holds ``..``, leads out through a link, or is no
            directory.
    """
    parts = PurePosixPath(name).parts
    is_plain = name.isprintable() and "\\" not in name and ":" not in name
    if not parts or not is_plain or len(name) > _MAX_NAME_LETTERS:
        raise ConfigError(f"model {name[:80]!r}: expected a relative path inside the model roots")
    if name.startswith(("/", "~")) or ".." in parts:
        raise ConfigError(f"model {name!r}: must be relative and without '..'")
    for root in roots:
        path = root.joinpath(*parts)
        if not os.path.isdir(path):  # in a closed folder pathlib raises, and this says no
            continue
        inside = root.resolve()
        if not path.resolve().is_relative_to(inside):
            raise ConfigError(f"model {name!r}: a link leads out of the model root")
        return CheckpointFiles(directory=path, root=inside)
    raise ConfigError(f"model {name!r}: not found in the {len(roots)} configured model roots")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """The files of one checkpoint directory, and the folder they may not leave."""

    directory: Path
    """Where they are looked for."""
    root: Path
    """Folder that their resolved paths lie in."""

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return os.path.isfile(self.directory / name)

    def path(self, name: str) -> Path:
        """Path of a file that must exist.

        Args:
            name: A file name, without folders.

        Raises:
            ConfigError: The name is a path, the file is missing, or a link leads out of ``root``.
        """
        if name != PurePosixPath(name).name or "\\" in name or name == "..":
            raise ConfigError(f"{self.directory}: expected a file name, got {name!r}")
        path = self.directory / name
        try:
            resolved = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"{path}: no such file") from error
        if not resolved.is_relative_to(self.root):
            raise ConfigError(f"{path}: a link leads out of {self.root}")
        if not resolved.is_file():
            raise ConfigError(f"{path}: expected a file")
        return path


def checkpoint_files(directory: Path, root: Path | None = None) -> CheckpointFiles:
    """The files of a checkpoint.

    Args:
        directory: The checkpoint.
        root: Folder that no file may lie outside of; by default the directory itself, or the
            repository's folder when the directory is a snapshot in a Hugging Face cache.

    Raises:
        ConfigError: No such directory.
    """
    if not os.path.isdir(directory):
        raise ConfigError(f"{directory}: no such directory")
    resolved = directory.resolve()
    inside = root.resolve() if root is not None else _enclosing(resolved)
    return CheckpointFiles(directory=directory, root=inside)


def _enclosing(directory: Path) -> Path:
    snapshots = directory.parent
    is_snapshot = snapshots.name == _SNAPSHOTS and snapshots.parent.name.startswith(
        _REPOSITORY_PREFIX
    )
    return snapshots.parent if is_snapshot else directory
