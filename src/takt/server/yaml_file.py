"""Reads a YAML file into typed structures and refuses what it does not know, with the place.

YAML is decoded with PyYAML's safe loader. A key given twice, which YAML forbids and PyYAML lets
pass, is refused.

Start reading at :func:`read_yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
import yaml

from takt.errors import ConfigError

__all__ = ["read_yaml"]

T = TypeVar("T")

_Step: TypeAlias = Hashable
"""A key of a mapping or an index of a list."""


def read_yaml(path: Path, into: type[T]) -> T:
    """The content of ``path`` as an ``into``.

    Raises:
        ConfigError: The file cannot be read, is not YAML, or does not fit ``into``; the message
            names the file and the place in it, on one line.
    """
    value = _load(path)
    if value is None:
        raise ConfigError(f"{path}: the file is empty")
    try:
        return msgspec.convert(value, into)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_explain(str(error), value, into)}") from None


def _load(path: Path) -> object:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise ConfigError(f"{path}: {line}{error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401 - stubs err
        # Looked at before `<<` is resolved: a key may override the one it was merged with.
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} is given twice", key.start_mark
                    )
                seen.add((key.tag, key.value))
        return node


def _explain(message: str, value: object, into: type) -> str:
    """What msgspec says, in the words of a person who wrote the file."""
    reason, at_key, path = _split(message)
    place = _place(message, path, at_key, value, into)
    match = re.fullmatch(r"Object (contains unknown|missing required) field `(.*)`", reason)
    if match:
        problem = "unknown key" if match[1] == "contains unknown" else "missing"
        return f"{_shown([*place, match[2]])}: {problem}"
    reason = re.sub(r"\bobject\b", "mapping", re.sub(r"\barray\b", "list", reason))
    where = "the key " if at_key else ""
    return f"{where}{_shown(place)}: {reason[0].lower()}{reason[1:]}"


def _split(message: str) -> tuple[str, bool, str]:
    """The reason, whether a key of a mapping is at fault, and the place, ``$`` for the whole."""
    match = re.fullmatch(r"(.*) - at (`key` in )?`(\$.*)`", message, re.DOTALL)
    return (message, False, "$") if match is None else (match[1], bool(match[2]), match[3])


def _place(message: str, path: str, at_key: bool, value: object, into: type) -> Sequence[_Step]:
    """The steps to the place at fault.

    msgspec writes ``[...]`` for a key of a mapping. The key is found by leaving only one key in
    the mapping: with the one at fault the message stays the same.
    """
    place: list[_Step] = []
    steps: list[tuple[str, str]] = re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path)
    for name, index in [*steps, ("", "...")] if at_key else steps:
        if name or index != "...":
            place.append(name or int(index))
            continue
        mapping = cast("dict[Hashable, object]", _get(value, place))
        for key, item in mapping.items():
            reduced = _put(value, place, {key: item})
            if _refusal(reduced, into) == message:
                value = reduced
                place.append(key)
                break
    return place


def _refusal(value: object, into: type) -> str | None:
    try:
        msgspec.convert(value, into)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _get(value: object, place: Sequence[_Step]) -> object:
    for step in place:
        value = cast("dict[_Step, object]", value)[step]
    return value


def _put(value: object, place: Sequence[_Step], item: object) -> object:
    """A copy of ``value`` with ``item`` at ``place``."""
    if not place:
        return item
    copy = cast("dict[_Step, object]", value).copy()  # a list is copied and indexed alike
    copy[place[0]] = _put(copy[place[0]], place[1:], item)
    return copy


def _shown(place: Sequence[_Step]) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in place]
    return "".join(steps).removeprefix(".") or "the file"
