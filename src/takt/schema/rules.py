"""Small rules that the parts of a spec share; each raises ConfigError with what it found."""

from __future__ import annotations

import itertools

from takt.errors import ConfigError

__all__ = [
    "MAX_NAME_LETTERS",
    "check_choice",
    "check_distinct",
    "check_holds",
    "check_name",
    "check_positive",
    "check_sizes",
]

MAX_NAME_LETTERS = 200


def check_holds(holds: tuple[int, ...], num_layouts: int) -> None:
    """Refuse masks in which a layout is not held by itself and the last, or by a cheaper one."""
    if not holds or len(holds) != num_layouts:
        raise ConfigError(f"holds must have one mask per layout, {num_layouts}, got {len(holds)}")
    last = 1 << (num_layouts - 1)
    for layout, mask in enumerate(holds):
        if not mask & (1 << layout) or not mask & last or mask >= 2 * last:
            raise ConfigError(
                f"holds: layout {layout} must be held by itself and by the last layout"
                f" {num_layouts - 1}, got bit mask {mask:#b}"
            )
        if mask & ((1 << layout) - 1):
            raise ConfigError(f"holds: layout {layout} is held by a cheaper one, {mask:#b}")


def check_sizes(field: str, sizes: tuple[int, ...], *, may_be_empty: bool) -> None:
    """Refuse batch sizes that do not rise from 1."""
    rising = all(a < b for a, b in itertools.pairwise(sizes))
    if (not sizes and not may_be_empty) or (sizes and sizes[0] < 1) or not rising:
        raise ConfigError(f"{field} must be rising batch sizes from 1, got {list(sizes)}")


def check_name(what: str, name: str) -> None:
    """Refuse a name that is empty, very long or not printable."""
    if not name or len(name) > MAX_NAME_LETTERS or not name.isprintable():
        raise ConfigError(f"a {what} needs a printable name of 1 to 200 letters, got {name!r}")


def check_positive(what: str, **values: int) -> None:
    """Refuse a value below 1."""
    for name, value in values.items():
        if value < 1:
            raise ConfigError(f"{what}: {name} must be at least 1, got {value}")


def check_choice(what: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a value outside the known ones."""
    if value not in known:
        raise ConfigError(f"{what} must be one of {', '.join(known)}, got {value!r}")


def check_distinct(what: str, names: list[str]) -> None:
    """Refuse names that come twice."""
    if len(set(names)) != len(names):
        raise ConfigError(f"{what}: names must differ, got {', '.join(names)}")
