"""Options that are given once per name, as ``--robots pi0=4 --robots act=2``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from takt.errors import UsageError

__all__ = ["by_name"]

T = TypeVar("T")


def by_name(option: str, given: Iterable[tuple[str, T]]) -> dict[str, T]:
    """The values of an option by their names, in the order they were given.

    Raises:
        UsageError: A name came before: nobody could tell which of its values was meant.
    """
    values: dict[str, T] = {}
    for name, value in given:
        if name in values:
            raise UsageError(f"{option}: {name!r} is named twice; give it once")
        values[name] = value
    return values
