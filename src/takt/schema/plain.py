"""Specs to and from dictionaries of plain values, for JSON, msgpack and files.

Reading is strict: an unknown key, a missing key or a wrong type is refused with its path, so a
mistyped file never passes for a default.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from takt.errors import ConfigError
from takt.schema.spec import ObservationSpec, PolicySpec

__all__ = ["MAX_ITEMS", "observation_spec_from_plain", "read_plain", "spec_from_plain", "to_plain"]

T = TypeVar("T")
MAX_ITEMS = 8192


def to_plain(spec: object) -> dict[str, Any]:
    """A dictionary of strings, numbers, lists and dictionaries that says the same as ``spec``.

    Args:
        spec: A :class:`PolicySpec` or another dataclass of dataclasses, tuples and plain values.
    """
    return cast("dict[str, Any]", _plain(spec))


def spec_from_plain(value: object) -> PolicySpec:
    """The spec that :func:`to_plain` described.

    Raises:
        ConfigError: A key is unknown, missing or of the wrong type, or the spec contradicts itself.
    """
    return read_plain(PolicySpec, value, "spec")


def observation_spec_from_plain(value: object) -> ObservationSpec:
    """The observation spec in ``value``, which describes one or a whole policy.

    Raises:
        ConfigError: As :func:`spec_from_plain`.
    """
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        if "observation" in entries:
            return spec_from_plain(entries).observation
        return read_plain(ObservationSpec, entries, "observation")
    return read_plain(ObservationSpec, value, "observation")


def read_plain(kind: type[T], value: object, path: str) -> T:
    """The dataclass ``kind`` that ``value`` describes.

    Args:
        kind: A dataclass whose fields are dataclasses, tuples of one type, optional values,
            literals of strings, or plain values.
        value: What :func:`to_plain` made, or a file said.
        path: Where ``value`` is from, for errors.

    Raises:
        ConfigError: A key is unknown, missing or of the wrong type.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path}: expected a mapping, got {type(value).__name__}")
    entries = cast("Mapping[object, object]", value)
    fields = {field.name: field for field in dataclasses.fields(cast("Any", kind))}
    for key in entries:
        if key not in fields:
            raise ConfigError(f"{path}.{key}: unknown key; known: {', '.join(fields)}")
    hints = typing.get_type_hints(kind)
    arguments: dict[str, Any] = {}
    for name, field in fields.items():
        if name in entries:
            arguments[name] = _read_value(hints[name], entries[name], f"{path}.{name}")
        elif field.default is dataclasses.MISSING:
            raise ConfigError(f"{path}.{name}: this key is missing")
    return kind(**arguments)


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[object, ...]", value)]
    return value


def _read_value(hint: Any, value: object, path: str) -> object:  # noqa: ANN401 - a type form
    if dataclasses.is_dataclass(hint):
        return read_plain(cast("type[object]", hint), value, path)
    origin = typing.get_origin(hint)
    if origin is tuple:
        return _read_tuple(typing.get_args(hint)[0], value, path)
    if origin in {typing.Union, types.UnionType}:
        kind = next(arg for arg in typing.get_args(hint) if arg is not type(None))
        return None if value is None else _read_value(kind, value, path)
    if origin is typing.Literal:
        return _read_choice(typing.get_args(hint), value, path)
    return _read_scalar(hint, value, path)


def _read_choice(choices: tuple[object, ...], value: object, path: str) -> object:
    if value not in choices:
        known = ", ".join(map(repr, choices))
        raise ConfigError(f"{path}: expected one of {known}, got {value!r}")
    return value


def _read_tuple(kind: Any, value: object, path: str) -> tuple[object, ...]:  # noqa: ANN401
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{path}: expected a list, got {type(value).__name__}")
    items = cast("list[object] | tuple[object, ...]", value)
    if len(items) > MAX_ITEMS:
        raise ConfigError(f"{path}: expected at most {MAX_ITEMS} entries, got {len(items)}")
    return tuple(_read_value(kind, item, f"{path}[{index}]") for index, item in enumerate(items))


def _read_scalar(kind: type, value: object, path: str) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and is_number:
        return float(cast("float", value))
    # bool is a subclass of int: `horizon: true` must not read as 1.
    if type(value) is not kind:
        raise ConfigError(f"{path}: expected {kind.__name__}, got {type(value).__name__}")
    return value
