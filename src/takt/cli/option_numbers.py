"""Options that no command can use, told by their flags and not by the names of fields."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from takt.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["check_numbers", "flag_of", "naming_flags"]


def flag_of(option: str) -> str:
    """How a field of a command is spelt on the command line."""
    return f"--{option.replace('_', '-')}"


@contextmanager
def naming_flags(*options: str) -> Generator[None, None, None]:
    """Say the flag where an error of the code within begins with the name of a field.

    For options that are judged by the part of the program that they are made for.

    Args:
        options: Fields that are options of the same name.

    Raises:
        ConfigError: What came, in the command line's spelling.
    """
    try:
        yield
    except ConfigError as error:
        name, space, rest = str(error).partition(" ")
        if name not in options:
            raise
        raise ConfigError(f"{flag_of(name)}{space}{rest}") from None


def check_numbers(options: DataclassInstance, most: Mapping[str, float]) -> None:
    """Refuse infinity, "not a number", and what lies outside of reason.

    Such a number would fail far from here, where nobody knows which option it came from; JSON,
    in which processes are told, cannot even say it.

    Args:
        options: A command with its options as fields.
        most: Options that must lie above 0, and up to what.

    Raises:
        ConfigError: A number is impossible; the message names its flag.
    """
    for option in dataclasses.fields(options):
        value: object = getattr(options, option.name)
        if not isinstance(value, float):
            continue
        flag = flag_of(option.name)
        limit = most.get(option.name)
        # Written so that "not a number", which compares false with everything, is refused.
        if limit is not None and not 0 < value <= limit:
            raise ConfigError(f"{flag} must lie above 0 and up to {limit:g}, got {value:g}")
        if not math.isfinite(value):
            raise ConfigError(f"{flag} must be a finite number, got {value:g}")
