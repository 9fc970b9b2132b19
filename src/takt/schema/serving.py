"""What an operator says about a model that is to be served; gateway and worker are told alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from takt.errors import ConfigError

__all__ = ["ServedModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One model of a server."""

    name: str
    """Name robots ask for."""
    policy: str
    """Name of a policy in the catalog, or the path of a checkpoint."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the policy, such as echo's latency."""
    slo_ms: float = 200.0
    """Promised time from a robot sending an observation to the answer being at the robot."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a model needs a name")
        if self.slo_ms <= 0:
            raise ConfigError(f"model {self.name!r}: slo_ms must be positive, got {self.slo_ms}")
