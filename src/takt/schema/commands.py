"""What a supervisor tells its children while they run; gateways and workers are told alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from takt.schema.serving import ServedModel
from takt.units import Nanos

__all__ = ["AskLife", "Command", "CountRobots", "DriveIn", "LoadModel", "UnloadModel"]


@dataclass(frozen=True, slots=True)
class AskLife:
    """Say that you live."""


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Serve one more model."""

    model: ServedModel


@dataclass(frozen=True, slots=True)
class UnloadModel:
    """Serve a model no longer; what is under way is finished."""

    name: str


@dataclass(frozen=True, slots=True)
class CountRobots:
    """Say which robots have asked for which model; for gateways."""

    lately: Nanos
    """A robot that has sent nothing for longer does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveIn:
    """Drive the device in this formation, from a moment on at which it is idle; for workers."""

    formation: str
    options: Mapping[str, Any]
    """Options of the formation."""
    prefix_limit: int | None
    """Most rows of a prefix launch; None: the largest captured size."""
    denoise_limit: int | None
    """Most rows of a denoise launch; likewise."""


Command: TypeAlias = AskLife | LoadModel | UnloadModel | CountRobots | DriveIn
