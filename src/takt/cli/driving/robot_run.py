"""What one robot sent and got, as plain values that may travel between processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from takt.cli.driving.outage import Outage
from takt.cli.driving.robot import Behaviour, DrivenRobot
from takt.core.attainment import RequestRecord
from takt.units import Nanos

__all__ = ["RobotRun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotRun:
    """A robot's part in a run that is over; fields as of :class:`DrivenRobot`."""

    name: str
    behaviour: Behaviour
    records: Sequence[RequestRecord]
    errors: Counter[str]
    stages: Sequence[Mapping[str, Nanos]]
    splits: Sequence[Mapping[str, Nanos]]
    lags: Sequence[Nanos]
    checked: int
    foreign: int
    ticks: int
    starved_ticks: int
    sent_bytes: int = 0
    raw_bytes: int = 0
    outages: Sequence[Outage] = ()

    @classmethod
    def of(cls, robot: DrivenRobot) -> RobotRun:
        """What a robot that has finished did."""
        return cls(
            name=robot.name,
            behaviour=robot.behaviour,
            records=robot.records,
            errors=robot.errors,
            stages=robot.stages,
            splits=robot.splits,
            lags=robot.lags,
            checked=robot.checked,
            foreign=robot.foreign,
            ticks=robot.ticks,
            starved_ticks=robot.starved_ticks,
            sent_bytes=robot.sent_bytes,
            raw_bytes=robot.raw_bytes,
            outages=robot.outages,
        )

    @classmethod
    def joined(cls, runs: Iterable[RobotRun]) -> list[RobotRun]:
        """One run for each robot, by name in the order they first appear."""
        by_name: dict[str, list[RobotRun]] = {}
        for run in runs:
            by_name.setdefault(run.name, []).append(run)
        return [cls._sum(parts) for parts in by_name.values()]

    @classmethod
    def _sum(cls, runs: Sequence[RobotRun]) -> RobotRun:
        return cls(
            name=runs[0].name,
            behaviour=runs[0].behaviour,
            records=[*chain.from_iterable(run.records for run in runs)],
            errors=sum((run.errors for run in runs), Counter[str]()),
            stages=[*chain.from_iterable(run.stages for run in runs)],
            splits=[*chain.from_iterable(run.splits for run in runs)],
            lags=[*chain.from_iterable(run.lags for run in runs)],
            checked=sum(run.checked for run in runs),
            foreign=sum(run.foreign for run in runs),
            ticks=sum(run.ticks for run in runs),
            starved_ticks=sum(run.starved_ticks for run in runs),
            sent_bytes=sum(run.sent_bytes for run in runs),
            raw_bytes=sum(run.raw_bytes for run in runs),
            outages=[*chain.from_iterable(run.outages for run in runs)],
        )
