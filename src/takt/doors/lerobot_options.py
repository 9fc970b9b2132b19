"""What an operator says about the LeRobot door."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from takt.errors import ConfigError
from takt.schema.spec import PolicySpec

__all__ = ["LerobotModelOptions", "LerobotOptions", "SimilarState", "aliases_of"]

_IN_RADIANS = {"rad": 1.0, "deg": math.pi / 180}
_MAX_NAME_LETTERS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarState:
    """Observations whose state has hardly changed are not worth an inference.

    LeRobot's own server drops what lies nearer than 1 in the robot's units. That is a degree for
    one robot and 57 degrees for the next, which then stands still, so here the filter is off unless
    an operator gives both the number and its unit.
    """

    tolerance: float
    """Euclidean distance of two states below which they are similar."""
    unit: str
    """Unit of the tolerance, and of the state's values unless the policy says another."""

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < math.inf:
            raise ConfigError(f"similar_state: expected a tolerance above 0, got {self.tolerance}")
        if not self.unit.isalnum():
            raise ConfigError(
                f"similar_state: expected a unit such as deg or rad, got {self.unit!r}"
            )

    def tolerance_for(self, spec: PolicySpec) -> float:
        """The tolerance in the units of a policy's state.

        Raises:
            ConfigError: The policy's state has another unit, or several.
        """
        units = {axis.unit for axis in spec.observation.state if axis.unit}
        if not units or units == {self.unit}:
            return self.tolerance
        unit = units.pop()
        if units or unit not in _IN_RADIANS or self.unit not in _IN_RADIANS:
            raise ConfigError(
                f"similar_state: model {spec.name!r} has its state in"
                f" {', '.join(sorted({unit, *units}))}; a tolerance in {self.unit} has no meaning"
            )
        return self.tolerance * _IN_RADIANS[self.unit] / _IN_RADIANS[unit]


@dataclass(frozen=True, slots=True, kw_only=True)
class LerobotModelOptions:
    """How one model is served to LeRobot robots."""

    aliases: tuple[str, ...] = ()
    """Further names of it: what robots give as ``pretrained_name_or_path``. A name and no more:
    nothing is downloaded or opened."""
    similar_state: SimilarState | None = None
    """Drop observations whose state has hardly changed; None: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LerobotOptions:
    """The LeRobot door."""

    host: str = "127.0.0.1"
    """Address to bind; one that others can reach needs ``allow_from``."""
    port: int = 0
    """Port to bind; 0 takes a free one."""
    allow_from: tuple[str, ...] = ()
    """Networks that robots may come from, such as ``10.0.0.0/24``. The protocol cannot carry a
    token, so this is the authentication."""
    state_dir: str | None = None
    """Directory that keeps what sessions are known by, so that robots go on after a restart of
    the server; None: kept in memory."""
    fps: float = 30.0
    """Control rate of robots whose policy names none; spaces the timestamps of a chunk."""
    models: Mapping[str, LerobotModelOptions] = field(
        default_factory=dict[str, LerobotModelOptions]
    )
    """Options of models by name."""

    def __post_init__(self) -> None:
        if not 0 < self.fps <= 1000:  # noqa: PLR2004 - a control rate
            raise ConfigError(f"fps must lie in 0..1000, got {self.fps}")


def aliases_of(
    served: tuple[str, ...], options: Mapping[str, LerobotModelOptions]
) -> dict[str, str]:
    """Each alias and the model it means.

    Args:
        served: The server's models.
        options: Their options.

    Raises:
        ConfigError: An option is of a model that is not served, or an alias means two models.
    """
    names = {name: name for name in served}
    for model, given in options.items():
        if model not in served:
            raise ConfigError(f"no model {model!r} to give options to; served: {', '.join(served)}")
        for alias in given.aliases:
            if not 0 < len(alias) <= _MAX_NAME_LETTERS or not alias.isprintable():
                raise ConfigError(f"model {model!r}: alias {alias[:40]!r} is no printable name")
            if names.setdefault(alias, model) != model:
                raise ConfigError(f"alias {alias!r} means both {names[alias]!r} and {model!r}")
    return {alias: model for alias, model in names.items() if alias not in served}
