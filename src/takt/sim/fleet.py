"""What is simulated: devices, groups of robots, the network between them.

A value that no robot could have is refused here, before anything is built from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from takt.core.model import Model
from takt.core.scheduler import MOST_PRIORITY
from takt.core.trace import Setup
from takt.errors import ConfigError
from takt.robot.replanning import ThresholdRule
from takt.sim.network import Encoding, Network, observation_bytes
from takt.units import Nanos, seconds

__all__ = ["MOST_HORIZON", "MOST_HZ", "MOST_ROBOTS", "Deadline", "Fleet", "RobotGroup"]

MOST_ROBOTS = 100_000
"""Largest group."""
MOST_HZ = 10_000.0
"""Highest rate of observations and of control ticks."""
MOST_HORIZON = 100_000
"""Longest chunk."""

Deadline: TypeAlias = Literal["slo", "queue"]
"""Where the server takes ``due`` from: the model's promise, or the robot's own action queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotGroup:
    """Robots that behave alike."""

    model: str
    """Model they ask."""
    count: int
    """How many there are."""
    device: str
    """Device that serves them."""
    name: str = ""
    """What reports call them, one name per group; the model's name when empty."""
    rate_hz: float | None = None
    """Open loop: observations per second, whatever the answers do. None is closed loop."""
    jitter_ms: float = 0.0
    """Open loop: an observation leaves up to this much later than its period says."""
    threshold: float = 0.5
    """Closed loop: ask when the queue has drained to this share of a chunk, one request at a
    time."""
    control_hz: float = 30.0
    """Control ticks per second; one action is executed per tick."""
    horizon: int = 50
    """Actions in a chunk."""
    deadline: Deadline = "slo"
    """Where the server takes ``due`` from."""
    supersede: bool = False
    """Whether a newer observation replaces one that still waits. Off, every request counts."""
    layout: int = 0
    """Layout of the rows its observations make, see :attr:`~takt.core.model.Model.holds`."""
    priority: int = 0
    """Class of its requests, 0 first."""
    num_cameras: int = 2
    """Camera images per observation."""
    encoding: Encoding = "raw"
    """How the images travel."""
    network: Network | None = None
    """What lies between these robots and the server; the network of the fleet when None."""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.model)
        _check_range("count", self.count, 0, MOST_ROBOTS)
        _check_range("priority", self.priority, 0, MOST_PRIORITY)
        _check_range("horizon", self.horizon, 1, MOST_HORIZON)
        _check_rate("control_hz", self.control_hz)
        if self.rate_hz is not None:
            _check_rate("rate_hz", self.rate_hz)
        # With more jitter than a period an observation would overtake the one before it.
        period_ms = math.inf if self.rate_hz is None else 1e3 / self.rate_hz
        if not 0 <= self.jitter_ms <= period_ms or math.isinf(self.jitter_ms):
            raise ConfigError(f"jitter_ms must lie in 0 to one period, got {self.jitter_ms}")
        if self.deadline not in ("slo", "queue"):
            raise ConfigError(f"deadline must be 'slo' or 'queue', got {self.deadline!r}")
        ThresholdRule(threshold=self.threshold)
        observation_bytes(self.num_cameras, self.encoding)

    @property
    def tick(self) -> Nanos:
        """Time between two control ticks."""
        return seconds(1 / self.control_hz)

    @property
    def observation_bytes(self) -> int:
        """Size of one observation."""
        return observation_bytes(self.num_cameras, self.encoding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Everything a simulation is about, except its seed and its length."""

    devices: Mapping[str, Setup]
    """How each device is scheduled."""
    robots: tuple[RobotGroup, ...]
    network: Network
    """Of all robots whose group has none of its own."""
    spreads: Mapping[str, float] = field(default_factory=dict[str, float])
    """Standard deviation of the times of a device's launches, as a share of their profiled times;
    a device that is absent takes those times exactly."""

    def __post_init__(self) -> None:
        for name, spread in self.spreads.items():
            self._check_spread(name, spread)
        names: set[str] = set()
        for group in self.robots:
            self.model(group)
            if group.name in names:
                raise ConfigError(f"two groups of robots are called {group.name!r}")
            names.add(group.name)

    def _check_spread(self, name: str, spread: float) -> None:
        if name not in self.devices:
            known = ", ".join(self.devices) or "none"
            raise ConfigError(f"spread of {name!r}: no such device; known: {known}")
        if not 0 <= spread < 1:
            raise ConfigError(f"spread of {name!r}: expected 0 up to 1, got {spread}")

    @property
    def population(self) -> int:
        """Number of robots."""
        return sum(group.count for group in self.robots)

    def model(self, group: RobotGroup) -> Model:
        """The model that serves ``group``.

        Raises:
            ConfigError: Its device does not exist or does not serve the model.
        """
        setup = self.devices.get(group.device)
        if setup is None:
            known = ", ".join(self.devices) or "none"
            raise ConfigError(f"robots {group.name!r}: no device {group.device!r}; known: {known}")
        for model in setup.models:
            if model.name == group.model:
                return model
        known = ", ".join(model.name for model in setup.models) or "none"
        raise ConfigError(
            f"robots {group.name!r}: device {group.device!r} does not serve {group.model!r};"
            f" it serves: {known}"
        )

    def resized(self, population: int) -> Fleet:
        """The fleet with ``population`` robots in the proportions it has now.

        Robots are given out one by one, each to the group that is owed most, so a larger fleet
        has every robot of a smaller one.

        Raises:
            ConfigError: The fleet has no robots, hence no proportions.

        Source:
            The divisor method of Webster and Sainte-Laguë.
        """
        if self.population == 0:
            raise ConfigError("a fleet without robots has no proportions")
        counts = [0] * len(self.robots)
        for _ in range(population):
            owed = [group.count / (2 * n + 1) for group, n in zip(self.robots, counts, strict=True)]
            counts[owed.index(max(owed))] += 1
        robots = tuple(
            replace(group, count=count) for group, count in zip(self.robots, counts, strict=True)
        )
        return replace(self, robots=robots)


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name} must lie in {least} to {most}, got {value}")


def _check_rate(name: str, value: float) -> None:
    if not 0 < value <= MOST_HZ:
        raise ConfigError(f"{name} must be above 0 and at most {MOST_HZ:g}, got {value}")
