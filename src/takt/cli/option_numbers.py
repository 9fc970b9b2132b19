"""Numbers among a command's options that no command can use."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from takt.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["check_numbers"]


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
        flag = f"--{option.name.replace('_', '-')}"
        limit = most.get(option.name)
        # Written so that "not a number", which compares false with everything, is refused.
        if limit is not None and not 0 < value <= limit:
            raise ConfigError(f"{flag} must lie above 0 and up to {limit:g}, got {value:g}")
        if not math.isfinite(value):
            raise ConfigError(f"{flag} must be a finite number, got {value:g}")
