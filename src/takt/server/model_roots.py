"""Where the checkpoints of a server may lie, at its start and while it runs.

An operator without model roots names directories as a shell does. With them a name is a path inside
one of the roots, and what a name may not be (``..``, an absolute path, a link that leads out) is
said by :func:`takt.policies.lerobot.paths.resolve_model`, however the name came here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from takt.errors import ConfigError
from takt.policies.catalog import KNOWN_POLICIES, is_lerobot_checkpoint
from takt.policies.lerobot.paths import resolve_model
from takt.policies.stand_in import PACED

__all__ = ["ModelRoots"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRoots:
    """Folders that models are kept in."""

    folders: tuple[Path, ...] = ()
    """Absolute, in the order in which they are searched; empty: models may lie anywhere."""

    @classmethod
    def of(cls, given: Iterable[str | Path], seen_from: Path) -> ModelRoots:
        """The roots that an operator gave.

        Args:
            given: Folders, relative or absolute.
            seen_from: Folder that relative ones start from.

        Raises:
            ConfigError: One of them is no folder, or closed to this user; the message begins with
                its path.
        """
        return cls(folders=tuple(_opened(seen_from / root) for root in given))

    def placed(
        self, policy: str, options: Mapping[str, Any], seen_from: Path
    ) -> tuple[str, Mapping[str, Any]]:
        """What a server is told of a model: where it lies, and what it may not leave.

        Args:
            policy: A policy of the package, a stand-in, or a path; with roots one inside of them.
            options: Those of the policy.
            seen_from: Folder that a relative path starts from where there are no roots.

        Returns:
            The policy, a directory as an absolute path, and its options; a ``root`` among them is
            overridden.

        Raises:
            ConfigError: There are roots, and the path names no directory inside of them; or it is
                no path at all.
        """
        if policy in KNOWN_POLICIES or policy.startswith(PACED):
            return policy, options
        if not self.folders:
            return str(_resolved(seen_from / policy)), options
        files = resolve_model(policy, self.folders)
        if not is_lerobot_checkpoint(files.directory):
            return str(files.directory), options
        return str(files.directory), {**options, "root": str(files.root)}


def _opened(root: Path) -> Path:
    if not os.path.isdir(root):
        raise ConfigError(f"{root}: {'is no' if os.path.exists(root) else 'no such'} folder")
    if not os.access(root, os.X_OK):
        raise ConfigError(f"{root}: you may not enter this folder")
    return root.resolve()


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links, a NUL
        raise ConfigError(f"policy {str(path)[:200]!r}: {error}") from None
