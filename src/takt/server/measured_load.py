"""The robots that ask, as gateways count them, and what they ask of a device.

A gateway counts sessions and requests by model (:mod:`takt.gateway.robots`). Here several gateways
are added up, and the load that was declared for a device is turned into the one that was measured.

Start reading at :func:`load_for`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from takt.server.device_load import robots_by_number
from takt.server.formation_choice import Load
from takt.server.population import Population
from takt.sim.fleet import MOST_ROBOTS, RobotGroup

__all__ = ["Asking", "asking_of", "declared_population", "load_for"]

_FASTEST_HZ = 1000.0
_SLOWEST_HZ = 0.01


class Asking:
    """Robots that ask for a model, and how much they ask."""

    __slots__ = ("over_s", "requests", "robots")

    def __init__(self, robots: float, requests: float, over_s: float) -> None:
        self.robots = robots
        self.requests = requests
        self.over_s = over_s

    @property
    def rate_hz(self) -> float:
        """Observations per second of one of them; 0 where nothing was counted."""
        robot_seconds = self.robots * self.over_s
        return self.requests / robot_seconds if robot_seconds else 0.0

    def __add__(self, other: Asking) -> Asking:
        over_s = max(self.over_s, other.over_s)
        return Asking(self.robots + other.robots, self.requests + other.requests, over_s)

    def __truediv__(self, parts: int) -> Asking:
        return Asking(self.robots / parts, self.requests / parts, self.over_s)


def load_for(load: Load, population: Population, rates: Mapping[str, float]) -> Load:
    """``load`` with the robots that were measured.

    Robots of a model behave as those that were declared for it, in their proportions, but send as
    often as measured; closed-loop robots send when they need to. Robots of a model for which none
    were declared behave like those of ``--robots``.
    """
    groups: list[RobotGroup] = []
    for model in load.models:
        count = min(population.robots.get(model.name, 0), MOST_ROBOTS)
        declared = [group for group in load.robots if group.model == model.name]
        template = robots_by_number(model, 1, load.robots[0].device)
        rate = rates.get(model.name, 0.0)
        for group, part in _divided(count, declared or [template]):
            groups.append(_resized(group, part, rate))
    return replace(load, robots=tuple(group for group in groups if group.count))


def _divided(count: int, groups: Sequence[RobotGroup]) -> Iterable[tuple[RobotGroup, int]]:
    """``count`` robots in the proportions of ``groups``, none lost to rounding."""
    total = sum(group.count for group in groups)
    given = passed = 0
    for group in groups:
        passed += group.count
        until = count * passed // total if total else count
        yield group, until - given
        given = until


def _resized(group: RobotGroup, count: int, measured: float) -> RobotGroup:
    if group.rate_hz is None or not measured:
        return replace(group, count=count)
    rate = min(max(round(measured, 2), _SLOWEST_HZ), _FASTEST_HZ)
    jitter = min(group.jitter_ms, 1e3 / rate)  # no observation overtakes the one before it
    return replace(group, count=count, rate_hz=rate, jitter_ms=jitter)


def declared_population(robots: Iterable[RobotGroup]) -> Population:
    """How many robots were declared for each model."""
    counts: Counter[str] = Counter()
    for group in robots:
        counts[group.model] += group.count
    return Population(counts)


def asking_of(event: Mapping[str, Any]) -> dict[str, Asking]:
    """Who asks for which model, as a gateway's ``robots`` says."""
    over_s = event["over_ms"] / 1e3
    models = cast("dict[str, dict[str, int]]", event["models"])
    return {
        model: Asking(counted["robots"], counted["requests"], over_s)
        for model, counted in models.items()
    }
