"""JSON files of a checkpoint, read strictly: every refusal names file and key.

A :class:`Section` is one object of a document. Its ``take_*`` methods say what they expect, so a
file that means something else than we think is refused and never guessed at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

from takt.errors import ConfigError

__all__ = ["Section", "parse_object", "read_document"]

_MAX_DOCUMENT_BYTES = 1 << 22
_MAX_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Section:
    """A JSON object and where it stands."""

    values: Mapping[str, Any]
    """Its entries."""
    where: str
    """File and path of keys, for errors."""

    def wrong(self, key: str, expected: str) -> NoReturn:
        """Refuse the value of ``key``.

        Raises:
            ConfigError: Always.
        """
        found = self.values.get(key, "no such key")
        raise ConfigError(f"{self.where}.{key}: expected {expected}, got {str(found)[:_MAX_SHOWN]}")

    def take_int(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number in ``low..high``."""
        value = self.values.get(key, default)
        if type(value) is not int or not low <= value <= high:
            self.wrong(key, f"a whole number in {low}..{high}")
        return value

    def take_float(self, key: str, default: float | None = None) -> float:
        """A positive finite number."""
        value = self.values.get(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < math.inf:
            self.wrong(key, "a positive number")
        return float(value)

    def take_bool(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            self.wrong(key, "true or false")
        return value

    def take_text(self, key: str, default: str | None = None) -> str:
        """A text."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            self.wrong(key, "a text")
        return value

    def take_texts(self, key: str) -> tuple[str, ...] | None:
        """A list of texts; None where it is null or missing."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(v, str) for v in cast("Any", value)):
            self.wrong(key, "a list of texts")
        return tuple(cast("list[str]", value))

    def take_ints(self, key: str, length: int) -> tuple[int, ...]:
        """A list of ``length`` positive whole numbers."""
        value = self.values.get(key)
        items = cast("list[object]", value) if isinstance(value, list) else []
        if len(items) != length or not all(type(v) is int and 0 < v < 1 << 20 for v in items):
            self.wrong(key, f"{length} positive whole numbers")
        return tuple(cast("list[int]", items))

    def take_section(self, key: str) -> Section:
        """An object; empty where it is null or missing."""
        value = self.values.get(key)
        if value is None:
            return Section({}, f"{self.where}.{key}")
        if not isinstance(value, dict):
            self.wrong(key, "an object")
        return Section(cast("dict[str, Any]", value), f"{self.where}.{key}")

    def take_sections(self, key: str) -> list[Section]:
        """A list of objects."""
        value = self.values.get(key)
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        if not all(isinstance(item, dict) for item in items):
            self.wrong(key, "a list of objects")
        return [
            Section(cast("dict[str, Any]", item), f"{self.where}.{key}[{index}]")
            for index, item in enumerate(items)
        ]


def read_document(path: Path) -> Section:
    """Read the JSON object in a file.

    Raises:
        ConfigError: The file is too large, no JSON, no object, or names a key twice.
    """
    try:
        if path.stat().st_size > _MAX_DOCUMENT_BYTES:
            raise ConfigError(f"{path}: expected at most {_MAX_DOCUMENT_BYTES} bytes")
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    return Section(parse_object(text, str(path)), path.name)


def parse_object(text: bytes, where: str) -> dict[str, Any]:
    """The JSON object in ``text``.

    Raises:
        ConfigError: It is no JSON, no object, names a key twice, or holds NaN.
    """
    try:
        value: object = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected an object, got {type(value).__name__}")
    return cast("dict[str, Any]", value)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
