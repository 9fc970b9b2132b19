"""Configurations of processes as lines of JSON, read strictly.

msgspec checks types and skips keys that it does not know; here such a key is refused, as it is
everywhere else: it is a mistyped one.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

import msgspec

from takt.errors import ConfigError

__all__ = ["read_json_document"]

T = TypeVar("T")


def read_json_document(kind: type[T], document: bytes, what: str) -> T:
    """The dataclass ``kind`` that a JSON object describes.

    Args:
        kind: A dataclass.
        document: UTF-8.
        what: What the document is, for errors.

    Raises:
        ConfigError: A key is unknown, missing, of the wrong type or impossible.
    """
    try:
        keys = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
        read = msgspec.json.decode(document, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what}: {error}") from None
    known = [field.name for field in dataclasses.fields(cast("Any", kind))]
    for key in keys:
        if key not in known:
            raise ConfigError(f"{what}: unknown key {key!r}; known: {known}")
    return read
