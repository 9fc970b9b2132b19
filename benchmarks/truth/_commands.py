"""Runs a ``takt`` command as a person would, with a cache that is this run's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["takt"]

_LAST_WORDS = 500


def takt(*options: str, folder: Path, log: str) -> str:
    """What a ``takt`` command prints; its log is kept in ``folder``.

    Raises:
        RuntimeError: It failed; the message ends as its log does.
    """
    path = folder / f"{log}.log"
    with path.open("w", encoding="utf-8") as errors:
        done = subprocess.run(
            [sys.executable, "-m", "takt.cli.main", *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            check=False,
            # Profiles of other runs are not this run's.
            env={**os.environ, "XDG_CACHE_HOME": str(folder.resolve() / "cache")},
        )
    if done.returncode:
        said = path.read_text(encoding="utf-8").strip()[-_LAST_WORDS:]
        raise RuntimeError(f"takt {options[0]} ended with {done.returncode}: {said}")
    return done.stdout
