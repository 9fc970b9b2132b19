"""What a supervisor tells its children while they run; gateways and workers are told alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from takt.schema.serving import ServedModel

__all__ = ["AskLife", "Command", "LoadModel", "UnloadModel"]


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


Command: TypeAlias = AskLife | LoadModel | UnloadModel
