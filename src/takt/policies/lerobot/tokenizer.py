"""Finds and runs the tokenizer of a checkpoint, offline.

It is looked for in the path the operator gives, in the checkpoint, in a folder ``tokenizer`` beside
it, then in the local Hugging Face cache; nothing is downloaded. Text that spells a special token is
an instruction like any other: it is cut into ordinary tokens.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from takt.errors import ConfigError
from takt.policies.lerobot.documents import read_document

__all__ = ["InstructionTokenizer", "find_tokenizer"]

_TOKENIZER_FILE = "tokenizer.json"
_SETTINGS_FILE = "tokenizer_config.json"
_MAX_TOKENIZER_BYTES = 1 << 27
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def find_tokenizer(checkpoint: Path, given: Path | None, hub_name: str) -> Path:
    """The tokenizer file to use.

    Args:
        checkpoint: Directory of the checkpoint.
        given: What the operator gave: a file or a directory.
        hub_name: Name of the tokenizer on the Hugging Face hub.

    Raises:
        ConfigError: There is none; the message says which file and how to get it.
    """
    if given is not None:
        path = given / _TOKENIZER_FILE if os.path.isdir(given) else given
        if not os.path.isfile(path):  # in a closed folder pathlib raises, and this says no
            raise ConfigError(f"{path}: no such file; expected a tokenizer")
        return path
    beside = checkpoint.parent / "tokenizer" / _TOKENIZER_FILE
    places = [checkpoint / _TOKENIZER_FILE, beside, *_in_cache(hub_name)]
    for path in places:
        if os.path.isfile(path):
            return path
    raise ConfigError(
        f"{checkpoint}: needs {_TOKENIZER_FILE} of {hub_name}; copy it into the checkpoint, name it"
        f" with --tokenizer, or run once: hf download {hub_name} {_TOKENIZER_FILE} {_SETTINGS_FILE}"
    )


class InstructionTokenizer:
    """Turns instructions into token ids. Any number of threads may call it at once.

    Args:
        path: A ``tokenizer.json``; a ``tokenizer_config.json`` beside it names the padding.
        max_tokens: Longest instruction; what is longer is cut on the right.
        pad_token: Text of the padding token where no settings name it.
        starts_with: Text of the token every instruction starts with; None: whatever the file
            says.

    Raises:
        ConfigError: The file cannot be read, or lacks one of these tokens.
    """

    def __init__(
        self, path: Path, *, max_tokens: int, pad_token: str, starts_with: str | None
    ) -> None:
        self._path = path
        self._max_tokens = max_tokens
        self._tokenizer = _load(path)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True
        settings = path.with_name(_SETTINGS_FILE)
        if settings.is_file():
            named = read_document(settings).values.get("pad_token")
            pad_token = named if isinstance(named, str) else pad_token
        self.pad_id = self.id_of(pad_token)
        """Id that fills an instruction up; the network never looks at it."""
        self._first = None if starts_with is None else self.id_of(starts_with)
        self._tokenizer.enable_truncation(max_tokens)

    @property
    def size(self) -> int:
        """Ids it may give are below this."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def id_of(self, token: str) -> int:
        """Id of a token by its text.

        Raises:
            ConfigError: There is no such token.
        """
        found = self._tokenizer.token_to_id(token)
        if found is None:
            raise ConfigError(f"{self._path}: no token {token!r}")
        return int(found)

    def encode(self, text: str) -> list[int]:
        """Ids of an instruction, at most ``max_tokens``."""
        # A lone surrogate cannot be encoded; it becomes a question mark instead of an error.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        ids: list[int] = list(self._tokenizer.encode(clean).ids)
        if self._first is not None and ids[:1] != [self._first]:
            ids = [self._first, *ids][: self._max_tokens]
        return ids


def _load(path: Path) -> Any:  # noqa: ANN401 - the package has no annotations
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError(
            "reading instructions needs the package tokenizers: pip install 'takt-serve[policies]'"
        ) from error
    try:
        size = path.stat().st_size
        text = path.read_bytes() if size <= _MAX_TOKENIZER_BYTES else b""
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if size > _MAX_TOKENIZER_BYTES:
        raise ConfigError(f"{path}: expected at most {_MAX_TOKENIZER_BYTES} bytes")
    try:
        return Tokenizer.from_buffer(text)
    except Exception as error:  # the package raises bare exceptions
        raise ConfigError(f"{path}: not a tokenizer: {error}") from error


def _in_cache(hub_name: str) -> list[Path]:
    if not _HUB_NAME.fullmatch(hub_name) or ".." in hub_name:
        return []
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    repository = cache / f"models--{hub_name.replace('/', '--')}"
    return sorted((repository / "snapshots").glob(f"*/{_TOKENIZER_FILE}"))
