"""Refuses files and folders that a command could not use, by the option that names them.

Whoever reads a file says what is wrong with it and knows of no option; a file that is read late, or
by another process, is looked at here before anything is started.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from takt.errors import ConfigError
from takt.policies.lerobot.tokenizer import find_tokenizer

__all__ = ["check_folder", "check_tokenizer", "named_by"]


@contextmanager
def named_by(option: str) -> Generator[None, None, None]:
    """Say the option before what is wrong with the file that it names.

    Raises:
        ConfigError: What came, with ``option`` before it.
    """
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{option} {error}") from None


def check_folder(flag: str, path: Path | None) -> None:
    """Refuse what is no folder; one that is not there is made by those who need it.

    Raises:
        ConfigError: It is something else; the message begins with the flag.
    """
    if path is not None and os.path.exists(path) and not os.path.isdir(path):
        raise ConfigError(f"{flag} {path}: is no folder")


def check_tokenizer(path: Path | None) -> None:
    """Refuse a ``--tokenizer`` that is neither a file nor a folder with one.

    Raises:
        ConfigError: There is no such file; the message begins with the flag.
    """
    if path is not None:
        with named_by("--tokenizer"):
            find_tokenizer(Path(), path, "")
