"""The secret that a server asks for: where commands take it from."""

from __future__ import annotations

import os
from pathlib import Path

from takt.errors import ConfigError

__all__ = ["read_token"]


def read_token(path: Path | None) -> str | None:
    """The token in the file of ``--token-file``, else that of the environment.

    Raises:
        ConfigError: The file cannot be read, or is empty.
    """
    if path is None:
        return os.environ.get("TAKT_TOKEN") or None
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"--token-file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--token-file {path}: expected text, got other bytes") from None
    if not token:
        raise ConfigError(f"--token-file {path}: the file is empty")
    return token
